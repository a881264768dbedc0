-- Purpose: the due rows, oldest first, with what decides how many of them one claim takes.
-- Locks: the index entries and rows read, in (available_at, event_id) order; at most LIMIT of them.
-- Index: `idx_pending` (status, available_at, event_id), without a sort: a sort would lock every due row.
--   The hint makes MySQL read it even when statistics are missing or the table is small: a sort would also carry
--   payloads along and fail on a large one (error 1038). Without such an index, and on MariaDB, it is a comment.
-- Guards: SKIP LOCKED, so that claimers and operators never wait for each other. NOW(6) is the database's clock in
--   the session's time zone, which is the producers'.
SELECT /*+ INDEX(`outbox_event` `idx_pending`) */ `event_id`,
    OCTET_LENGTH(`payload`) AS payload_bytes,
    COALESCE(`attempts`, 0) AS attempts
-- ? last_outcome: , `last_outcome` AS last_outcome
FROM `outbox_event`
WHERE `status` = 'NEW'
    AND `available_at` <= NOW(6)
ORDER BY `available_at`, `event_id`
LIMIT ?
FOR UPDATE SKIP LOCKED;
