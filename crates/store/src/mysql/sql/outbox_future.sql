-- Purpose: waiting rows that are due more than a day from now: mostly a sign of a producer in another time zone.
-- Locks: none.
-- Index: `idx_pending`.
SELECT COUNT(*)
FROM `outbox_event`
WHERE `status` = 'NEW'
    AND `available_at` > NOW(6) + INTERVAL 1 DAY;
