-- Purpose: the next sent rows in the order in which they were due, and whether each is old enough to go.
-- Locks: none.
-- Index: `idx_pending`, its SENT part, in order. See claim_select.sql about the hint.
-- Guards: a row is due before it is sent, so rows that became due after the date are not looked at. Without `sent_at`
--   nothing tells better when a row was sent than when it was due.
SELECT /*+ INDEX(`outbox_event` `idx_pending`) */
    `event_id` AS event_id,
    DATE_FORMAT(`available_at`, '%Y-%m-%d %H:%i:%s.%f') AS due_at,
    DATE_FORMAT(`available_at`, '%Y-%m-%d %H:%i:%s.%f') AS dated, -- ? !sent_at
-- ? sent_at: DATE_FORMAT(COALESCE(`sent_at`, `available_at`), '%Y-%m-%d %H:%i:%s.%f') AS dated,
    `available_at` < CAST(? AS DATETIME(6)) AS old -- ? !sent_at
-- ? sent_at: COALESCE(`sent_at`, `available_at`) < CAST(? AS DATETIME(6)) AS old
FROM `outbox_event`
WHERE `status` = 'SENT'
    AND `available_at` < CAST(? AS DATETIME(6))
-- ? after: AND `available_at` >= CAST(? AS DATETIME(6)) AND (`available_at` > CAST(? AS DATETIME(6)) OR `event_id` > ?)
ORDER BY `available_at`, `event_id`
LIMIT ?;
