-- Purpose: the next rows in the order of a replay's walk, and which of them are chosen.
-- Locks: none.
-- Index: primary key, in order; with a sequence its unique key.
-- Guards: the walk reads every row once, so that a page costs the same however few rows are chosen, and a row that was
--   replayed lies behind it.
SELECT
    `event_id` AS position, -- ? !sequence
-- ? sequence: CAST(`sequence` AS CHAR) AS position,
    `event_id` AS event_id,
    DATE_FORMAT(`created_at`, '%Y-%m-%d %H:%i:%s.%f') AS at, -- ? !sent_at
-- ? sent_at: DATE_FORMAT(COALESCE(`sent_at`, `created_at`), '%Y-%m-%d %H:%i:%s.%f') AS at,
    TIMESTAMPDIFF(SECOND, `created_at`, NOW(6)) AS age, -- ? !sent_at
-- ? sent_at: TIMESTAMPDIFF(SECOND, COALESCE(`sent_at`, `created_at`), NOW(6)) AS age,
    COALESCE(`status` = 'SENT'
-- ? by_event_type: AND `event_type` = ?
-- ? by_destination: AND `destination` = ?
-- ? by_aggregate: AND `aggregate_id` = ?
-- ? by_from: AND
-- ? by_from_sent: COALESCE(`sent_at`, `created_at`) >= CAST(? AS DATETIME(6))
-- ? by_from_created: `created_at` >= CAST(? AS DATETIME(6))
-- ? by_until: AND
-- ? by_until_sent: COALESCE(`sent_at`, `created_at`) <= CAST(? AS DATETIME(6))
-- ? by_until_created: `created_at` <= CAST(? AS DATETIME(6))
        , FALSE) AS chosen
FROM `outbox_event`
WHERE `event_id` IS NOT NULL
-- ? by_id: AND `event_id` IN (?)
-- ? after_sequence: AND `sequence` > ?
-- ? after_id: AND `event_id` > ?
ORDER BY
    `event_id` -- ? !sequence
-- ? sequence: `sequence`
LIMIT ?;
