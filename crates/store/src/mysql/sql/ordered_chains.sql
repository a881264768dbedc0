-- Purpose: what ordered_chain.sql tells, for many aggregates by one plan, each up to the same number of rows.
-- Locks: none; what is taken is locked afterwards, by ordered_lock.sql.
-- Index: the primary key for the heads, `idx_aggregate` up to LIMIT for each, the primary key for the rows.
-- Guards: as ordered_chain.sql: one statement.
-- Why: each part of a UNION is planned by itself at every execution, which took most of an ordered claim's time: for 128
--   chains of five rows 110 ms instead of 13 ms. What is materialised for each head holds ids only. For MySQL 8.0.14 and
--   later: MariaDB has no LATERAL.
SELECT follower.`event_id` AS event_id,
    chain.head AS head,
    EXISTS (SELECT 1 FROM `outbox_event` AS sending FORCE INDEX (`idx_aggregate`)
        WHERE sending.`aggregate_id` = follower.`aggregate_id`
-- ? aggregate_type: AND sending.`aggregate_type` <=> follower.`aggregate_type`
            AND sending.`status` = 'SENDING') AS held,
    0 AS dead, -- ? !block
-- ? block: EXISTS (SELECT 1 FROM `outbox_event` AS any_dead WHERE any_dead.`status` = 'DEAD')
-- ? block: AND EXISTS (SELECT 1 FROM `outbox_event` AS dead FORCE INDEX (`idx_aggregate`)
-- ? block: WHERE dead.`aggregate_id` = follower.`aggregate_id` AND dead.`status` = 'DEAD'
-- ? block_typed: AND dead.`aggregate_type` <=> follower.`aggregate_type`
-- ? block_sequence: AND dead.`sequence` < follower.`sequence`
-- ? block_created: AND (COALESCE(dead.`created_at`, '1000-01-01'), dead.`event_id`)
-- ? block_created: < (COALESCE(follower.`created_at`, '1000-01-01'), follower.`event_id`)
-- ? block: ) AS dead,
    TIMESTAMPDIFF(MICROSECOND, NOW(6), follower.`available_at`) AS wait_micros,
    OCTET_LENGTH(follower.`payload`) AS payload_bytes,
    COALESCE(follower.`attempts`, 0) AS attempts
-- ? last_outcome: , follower.`last_outcome` AS last_outcome
FROM (
    SELECT head.`event_id` AS head, link.event_id AS event_id
    FROM `outbox_event` AS head
    JOIN LATERAL (
        SELECT earliest.`event_id` AS event_id
        FROM `outbox_event` AS earliest FORCE INDEX (`idx_aggregate`)
        WHERE earliest.`aggregate_id` = head.`aggregate_id`
-- ? aggregate_type: AND earliest.`aggregate_type` <=> head.`aggregate_type`
            AND earliest.`status` = 'NEW'
        ORDER BY earliest.`aggregate_id`
            , earliest.`created_at`, earliest.`event_id` -- ? !sequence
-- ? sequence: , earliest.`sequence`
        LIMIT ?
    ) AS link
    WHERE head.`event_id` IN (?)
) AS chain
JOIN `outbox_event` AS follower ON follower.`event_id` = chain.event_id
ORDER BY chain.head
    , follower.`created_at`, follower.`event_id` -- ? !sequence
-- ? sequence: , follower.`sequence`
;
