-- Purpose: the due rows of an ordered claim, the longest waiting first, each with what holds its aggregate up.
-- Locks: none; what is taken is locked afterwards, by ordered_lock.sql.
-- Index: `idx_pending` for the rows, then a few entries of `idx_aggregate` for each: its first entry of a status is the
--   earliest row. Sorting by aggregate_id too, which is the same for all of them, lets MySQL and MariaDB both read the
--   index in order. The hints keep either from reading all SENDING or DEAD rows for each row instead.
-- Guards: one statement, so that one moment is looked at. Rows without an aggregate are their own heads. DEAD rows are
--   looked for only when there are any.
SELECT due.`event_id` AS event_id,
    COALESCE((SELECT earliest.`event_id` FROM `outbox_event` AS earliest FORCE INDEX (`idx_aggregate`)
        WHERE earliest.`aggregate_id` = due.`aggregate_id`
-- ? aggregate_type: AND earliest.`aggregate_type` <=> due.`aggregate_type`
            AND earliest.`status` = 'NEW'
        ORDER BY earliest.`aggregate_id`
            , earliest.`created_at`, earliest.`event_id` -- ? !sequence
-- ? sequence: , earliest.`sequence`
        LIMIT 1), due.`event_id`) AS head,
    EXISTS (SELECT 1 FROM `outbox_event` AS sending FORCE INDEX (`idx_aggregate`)
        WHERE sending.`aggregate_id` = due.`aggregate_id`
-- ? aggregate_type: AND sending.`aggregate_type` <=> due.`aggregate_type`
            AND sending.`status` = 'SENDING') AS held,
    0 AS dead, -- ? !block
-- ? block: EXISTS (SELECT 1 FROM `outbox_event` AS any_dead WHERE any_dead.`status` = 'DEAD')
-- ? block: AND EXISTS (SELECT 1 FROM `outbox_event` AS dead FORCE INDEX (`idx_aggregate`)
-- ? block: WHERE dead.`aggregate_id` = due.`aggregate_id` AND dead.`status` = 'DEAD'
-- ? block_typed: AND dead.`aggregate_type` <=> due.`aggregate_type`
-- ? block_sequence: AND dead.`sequence` < due.`sequence`
-- ? block_created: AND (COALESCE(dead.`created_at`, '1000-01-01'), dead.`event_id`)
-- ? block_created: < (COALESCE(due.`created_at`, '1000-01-01'), due.`event_id`)
-- ? block: ) AS dead,
    0 AS wait_micros,
    (SELECT MAX(OCTET_LENGTH(measured.`payload`)) FROM `outbox_event` AS measured
        WHERE measured.`event_id` = due.`event_id`) AS payload_bytes,
    COALESCE(due.`attempts`, 0) AS attempts
-- ? last_outcome: , due.`last_outcome` AS last_outcome
FROM (
    SELECT `event_id`, `aggregate_id`, `attempts`, `available_at`, `created_at`
-- ? aggregate_type: , `aggregate_type`
-- ? sequence: , `sequence`
-- ? last_outcome: , `last_outcome`
    FROM `outbox_event` AS waiting
    WHERE `status` = 'NEW'
        AND `available_at` <= NOW(6)
-- ? shared: AND (`aggregate_id` IS NULL OR FIND_IN_SET(CRC32(CONCAT_WS('/'
-- ? shared_typed: , `aggregate_type`
-- ? shared: , `aggregate_id`)) % ?, ?))
    ORDER BY `available_at`, `event_id`
    LIMIT ?
) AS due
ORDER BY due.`available_at`, due.`event_id`;
