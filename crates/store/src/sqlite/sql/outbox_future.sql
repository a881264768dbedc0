-- Purpose: waiting rows that are due more than a day from now, mostly a sign of a producer that writes dates in another
--   zone; and, since SQLite keeps whatever is written, rows that no claim takes in time: ids that are no text, dates
--   of another form. A date with a T between day and time sorts behind all others of its day.
-- Locks: none.
-- Index: `idx_pending`, its NEW part.
SELECT COUNT(CASE WHEN "available_at" > strftime('%Y-%m-%d %H:%M:%f000', 'now', '+1 day') THEN 1 END) AS future,
    COUNT(CASE WHEN typeof("event_id") <> 'text' THEN 1 END) AS ids,
    COUNT(CASE WHEN "available_at" IS NULL
        OR "available_at" NOT GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9] [0-9][0-9]:[0-9][0-9]*' THEN 1 END) AS dates
FROM "outbox_event"
WHERE "status" = 'NEW';
