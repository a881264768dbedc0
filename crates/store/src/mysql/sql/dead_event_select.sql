-- Purpose: events for people, the oldest first: one of them, whatever its status, or the dead ones that a filter lets
--   through.
-- Locks: none.
-- Index: `idx_pending`, its DEAD part, in order; for one event the primary key. See claim_select.sql about the hint.
-- Why: payloads are read beside the query: where the server sorts all the same, for lack of the index, it would carry
--   them through the sort and fail on the first large one (error 1038). LEFT counts characters in JSON and text.
SELECT /*+ INDEX(listed `idx_pending`) */ -- ? !by_id
-- ? by_id: SELECT
    listed.`event_id` AS event_id,
    listed.`status` AS status,
    CAST(listed.`event_type` AS CHAR) AS event_type,
    CAST(listed.`aggregate_id` AS CHAR) AS aggregate_id,
    CAST(COALESCE(listed.`attempts`, 0) AS SIGNED) AS attempts,
    DATE_FORMAT(listed.`created_at`, '%Y-%m-%d %H:%i:%s.%f') AS created_at,
    (SELECT MAX(LEFT(shown.`payload`, ?)) FROM `outbox_event` AS shown WHERE shown.`event_id` = listed.`event_id`) AS payload, -- ? !by_id
-- ? by_id: listed.`payload` AS payload,
    (SELECT MAX(OCTET_LENGTH(measured.`payload`)) FROM `outbox_event` AS measured
        WHERE measured.`event_id` = listed.`event_id`) AS payload_bytes
-- ? aggregate_type: , CAST(listed.`aggregate_type` AS CHAR) AS aggregate_type
-- ? business_key: , CAST(listed.`business_key` AS CHAR) AS business_key
-- ? destination: , CAST(listed.`destination` AS CHAR) AS destination
-- ? last_error: , CAST(listed.`last_error` AS CHAR) AS last_error
-- ? last_outcome: , CAST(listed.`last_outcome` AS CHAR) AS last_outcome
FROM `outbox_event` AS listed
WHERE
    listed.`status` = 'DEAD' -- ? !by_id
-- ? by_id: listed.`event_id` = ?
-- ? by_event_type: AND listed.`event_type` = ?
-- ? by_destination: AND listed.`destination` = ?
-- ? by_reason: AND LOCATE(?, listed.`last_error`) > 0
-- ? by_age: AND listed.`created_at` <= NOW(6) - INTERVAL ? MICROSECOND
ORDER BY listed.`available_at`, listed.`event_id`
LIMIT ?;
