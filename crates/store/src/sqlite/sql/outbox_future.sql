-- Purpose: waiting rows that are due more than a day from now: mostly a sign of a producer that writes dates in
--   another zone or in another form. A date with a T between day and time sorts behind all others of its day.
-- Locks: none.
-- Index: `idx_pending`.
SELECT COUNT(*)
FROM "outbox_event"
WHERE "status" = 'NEW'
    AND "available_at" > strftime('%Y-%m-%d %H:%M:%f000', 'now', '+1 day');
