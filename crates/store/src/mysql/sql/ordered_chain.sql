-- Purpose: the earliest NEW rows of a few aggregates, each named by its head, in order, with what holds them up.
-- Locks: none; what is taken is locked afterwards, by ordered_lock.sql.
-- Index: the primary key for the head, then `idx_aggregate` up to LIMIT.
-- Guards: NEW, SENDING and DEAD rows of an aggregate are read in one statement, so that a row that becomes SENDING and
--   NEW again is never missed in between.
-- @row UNION ALL
(SELECT follower.`event_id` AS event_id,
    head.`event_id` AS head,
    EXISTS (SELECT 1 FROM `outbox_event` AS sending FORCE INDEX (`idx_aggregate`)
        WHERE sending.`aggregate_id` = head.`aggregate_id`
-- ? aggregate_type: AND sending.`aggregate_type` <=> head.`aggregate_type`
            AND sending.`status` = 'SENDING') AS held,
    0 AS dead, -- ? !block
-- ? block: EXISTS (SELECT 1 FROM `outbox_event` AS dead FORCE INDEX (`idx_aggregate`)
-- ? block: WHERE dead.`aggregate_id` = head.`aggregate_id` AND dead.`status` = 'DEAD'
-- ? block_typed: AND dead.`aggregate_type` <=> head.`aggregate_type`
-- ? block_sequence: AND dead.`sequence` < follower.`sequence`
-- ? block_created: AND (COALESCE(dead.`created_at`, '1000-01-01'), dead.`event_id`)
-- ? block_created: < (COALESCE(follower.`created_at`, '1000-01-01'), follower.`event_id`)
-- ? block: ) AS dead,
    TIMESTAMPDIFF(MICROSECOND, NOW(6), follower.`available_at`) AS wait_micros,
    OCTET_LENGTH(follower.`payload`) AS payload_bytes,
    COALESCE(follower.`attempts`, 0) AS attempts
-- ? last_outcome: , follower.`last_outcome` AS last_outcome
FROM `outbox_event` AS head
JOIN `outbox_event` AS follower FORCE INDEX (`idx_aggregate`)
    ON follower.`aggregate_id` = head.`aggregate_id`
-- ? aggregate_type: AND follower.`aggregate_type` <=> head.`aggregate_type`
        AND follower.`status` = 'NEW'
WHERE head.`event_id` = ?
ORDER BY
    follower.`created_at`, follower.`event_id` -- ? !sequence
-- ? sequence: follower.`sequence`
LIMIT ?)
-- @end
;
