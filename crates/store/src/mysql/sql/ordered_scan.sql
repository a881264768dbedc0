-- Purpose: what ordered_page.sql and, with the word chain, ordered_chain.sql tell, for a table without their index.
-- Locks: none; what is taken is locked afterwards, by ordered_lock.sql.
-- Index: `idx_pending`, all its unfinished rows at each claim. `doctor` says so.
-- Guards: one statement, so that one moment is looked at. Payloads are not carried through the sorts. Rows without
--   an aggregate are their own heads.
SELECT waiting.`event_id` AS event_id,
    waiting.head AS head,
    waiting.held AS held,
    waiting.dead AS dead,
    TIMESTAMPDIFF(MICROSECOND, NOW(6), waiting.`available_at`) AS wait_micros,
    (SELECT MAX(OCTET_LENGTH(measured.`payload`)) FROM `outbox_event` AS measured
        WHERE measured.`event_id` = waiting.`event_id`) AS payload_bytes,
    COALESCE(waiting.`attempts`, 0) AS attempts
-- ? last_outcome: , waiting.`last_outcome` AS last_outcome
FROM (
    SELECT `event_id`, `status`, `attempts`, `available_at`, `aggregate_id`
-- ? aggregate_type: , `aggregate_type`
-- ? last_outcome: , `last_outcome`
        , CASE WHEN `aggregate_id` IS NULL THEN `event_id`
            ELSE FIRST_VALUE(`event_id`) OVER (PARTITION BY `aggregate_id`
-- ? aggregate_type: , `aggregate_type`
                ORDER BY `status` <> 'NEW'
                    , `created_at`, `event_id` -- ? !sequence
-- ? sequence: , `sequence`
            ) END AS head
        , ROW_NUMBER() OVER (PARTITION BY `aggregate_id`
-- ? aggregate_type: , `aggregate_type`
            ORDER BY `status` <> 'NEW'
                , `created_at`, `event_id` -- ? !sequence
-- ? sequence: , `sequence`
        ) AS place
        , CASE WHEN `aggregate_id` IS NULL THEN 0
            ELSE MAX(`status` = 'SENDING') OVER (PARTITION BY `aggregate_id`
-- ? aggregate_type: , `aggregate_type`
            ) END AS held
        , CASE WHEN `aggregate_id` IS NULL THEN 0
            ELSE MAX(`status` = 'DEAD') OVER (PARTITION BY `aggregate_id`
-- ? aggregate_type: , `aggregate_type`
            ORDER BY
                `created_at`, `event_id` -- ? !sequence
-- ? sequence: `sequence`
            ROWS UNBOUNDED PRECEDING) END AS dead
    FROM `outbox_event`
    WHERE `status` IN ('NEW', 'SENDING') -- ? !block
-- ? block: WHERE `status` IN ('NEW', 'SENDING', 'DEAD')
) AS waiting
WHERE waiting.`status` = 'NEW'
    AND waiting.`available_at` <= NOW(6) -- ? !chain
-- ? shared: AND (waiting.`aggregate_id` IS NULL OR FIND_IN_SET(CRC32(CONCAT_WS('/'
-- ? shared_typed: , waiting.`aggregate_type`
-- ? shared: , waiting.`aggregate_id`)) % ?, ?))
-- ? chain: AND waiting.head IN (?) AND waiting.place <= ?
-- ? chain: ORDER BY waiting.head, waiting.place
ORDER BY waiting.`available_at`, waiting.`event_id` -- ? !chain
LIMIT ? -- ? !chain
;
