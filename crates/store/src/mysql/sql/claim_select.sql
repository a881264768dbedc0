-- Purpose: the due rows, oldest first, with what decides how many of them one claim takes.
-- Locks: the index entries and rows read, in (available_at, event_id) order; at most LIMIT of them.
-- Index: `idx_pending` (status, available_at, event_id), without a sort: a sort would lock every due row. On a table of a
--   few rows the server may sort all the same.
-- Guards: SKIP LOCKED, so that claimers and operators never wait for each other. NOW(6) is the database's clock in
--   the session's time zone, which is the producers'. The payload is measured beside the query: MySQL would carry whole
--   payloads through a sort and fail with "out of sort memory" (1038) on the first large one.
SELECT due.`event_id`,
    (SELECT MAX(OCTET_LENGTH(measured.`payload`)) FROM `outbox_event` AS measured
        WHERE measured.`event_id` = due.`event_id`) AS payload_bytes,
    COALESCE(due.`attempts`, 0) AS attempts
-- ? last_outcome: , due.`last_outcome` AS last_outcome
FROM `outbox_event` AS due
WHERE due.`status` = 'NEW'
    AND due.`available_at` <= NOW(6)
ORDER BY due.`available_at`, due.`event_id`
LIMIT ?
FOR UPDATE SKIP LOCKED;
