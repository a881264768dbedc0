-- Purpose: the due rows, oldest first, with what decides how many of them one claim takes.
-- Locks: the index entries and rows read, in (available_at, event_id) order; at most LIMIT of them.
-- Index: `idx_pending` (status, available_at, event_id), without a sort: a sort would lock every due row.
--   The hint makes MySQL read it even when statistics are missing or the table is small. Without such an index, and
--   on MariaDB, it is a comment.
-- Guards: SKIP LOCKED, so that claimers and operators never wait for each other. NOW(6) is the database's clock in
--   the session's time zone, which is the producers'. The payload is measured beside the query: where
--   MySQL sorts all the same, for lack of the index, it would carry JSON payloads through the sort and fail on the first
--   large one (error 1038). The place is for claim_select_from; its date is written and read by the database alone.
SELECT /*+ INDEX(due `idx_pending`) */ due.`event_id`,
    (SELECT MAX(OCTET_LENGTH(measured.`payload`)) FROM `outbox_event` AS measured
        WHERE measured.`event_id` = due.`event_id`) AS payload_bytes,
    COALESCE(due.`attempts`, 0) AS attempts
-- ? last_outcome: , due.`last_outcome` AS last_outcome
    , DATE_FORMAT(due.`available_at`, '%Y-%m-%d %H:%i:%s.%f') AS place
FROM `outbox_event` AS due
WHERE due.`status` = 'NEW'
    AND due.`available_at` <= NOW(6)
ORDER BY due.`available_at`, due.`event_id`
LIMIT ?
FOR UPDATE SKIP LOCKED;
