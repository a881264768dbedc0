-- Purpose: the aggregates whose rows wait behind a DEAD one.
-- Locks: none.
-- Index: `idx_pending`, its DEAD part, then `idx_aggregate` for each aggregate; without that, all NEW rows.
SELECT CAST(waiting.`aggregate_id` AS CHAR) AS aggregate_id,
    MAX(dead.events) AS dead,
    COUNT(*) AS waiting
-- ? aggregate_type: , waiting.`aggregate_type` AS aggregate_type
FROM (
    SELECT `aggregate_id`, COUNT(*) AS events
-- ? aggregate_type: , `aggregate_type`
        , MIN(COALESCE(`created_at`, '1000-01-01')) AS earliest -- ? !sequence
-- ? sequence: , MIN(`sequence`) AS earliest
    FROM `outbox_event`
    WHERE `status` = 'DEAD'
        AND `aggregate_id` IS NOT NULL
    GROUP BY `aggregate_id`
-- ? aggregate_type: , `aggregate_type`
) AS dead
JOIN `outbox_event` AS waiting
    ON waiting.`aggregate_id` = dead.`aggregate_id`
-- ? aggregate_type: AND waiting.`aggregate_type` <=> dead.`aggregate_type`
        AND waiting.`status` = 'NEW'
        AND waiting.`created_at` >= dead.earliest -- ? !sequence
-- ? sequence: AND waiting.`sequence` > dead.earliest
GROUP BY waiting.`aggregate_id`
-- ? aggregate_type: , waiting.`aggregate_type`
LIMIT ?;
