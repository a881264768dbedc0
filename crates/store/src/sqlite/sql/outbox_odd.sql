-- Purpose: waiting rows that no claim takes, or not in time: ids that are no text, dates in another form.
-- Locks: none.
-- Index: `idx_pending`, its NEW part.
SELECT COUNT(CASE WHEN typeof("event_id") <> 'text' THEN 1 END) AS ids,
    COUNT(CASE WHEN "available_at" NOT GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9] [0-9][0-9]:[0-9][0-9]*'
        OR "available_at" IS NULL THEN 1 END) AS dates
FROM "outbox_event"
WHERE "status" = 'NEW';
