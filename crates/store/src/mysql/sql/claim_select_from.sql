-- Purpose: as claim_select, from the place where the last claim ended: what lies before it is not read again.
-- Locks: as claim_select.
-- Index: `idx_pending` (status, available_at, event_id), in two ranges and without a sort: the rows due at the place's
--   very time from its id on, and the rows due later.
-- Guards: as claim_select. It never begins later than ten seconds ago, so that rows that commit late are not passed by;
--   then the id does not count. Rows before the place are found by claim_select, which runs every now and then.
-- Why: SKIP LOCKED still reads each locked entry, and each entry of a claimed row that is not purged yet, at every
--   claim: behind 100,000 of them the statement took 24 ms and 60 ms instead of 1.5 ms (the handler counters do not show
--   it). One condition `available_at` >= ? AND (…) would be one range, with all rows due at that very time in it.
--   `status` = 'NEW' would let MariaDB look up all waiting rows by the status alone, from the oldest one again; it is
--   written where the status is an ENUM, which no server reads by a range.
SELECT /*+ INDEX(due `idx_pending`) */ due.`event_id`,
    (SELECT MAX(OCTET_LENGTH(measured.`payload`)) FROM `outbox_event` AS measured
        WHERE measured.`event_id` = due.`event_id`) AS payload_bytes,
    COALESCE(due.`attempts`, 0) AS attempts
-- ? last_outcome: , due.`last_outcome` AS last_outcome
    , DATE_FORMAT(due.`available_at`, '%Y-%m-%d %H:%i:%s.%f') AS place
FROM `outbox_event` AS due
WHERE due.`status` >= 'NEW' AND due.`status` <= 'NEW' -- ? !enum_status
-- ? enum_status: WHERE due.`status` = 'NEW'
    AND ((due.`available_at` = LEAST(CAST(? AS DATETIME(6)), NOW(6) - INTERVAL 10 SECOND)
            AND due.`event_id` >= IF(CAST(? AS DATETIME(6)) <= NOW(6) - INTERVAL 10 SECOND, ?, ''))
        OR (due.`available_at` > LEAST(CAST(? AS DATETIME(6)), NOW(6) - INTERVAL 10 SECOND)
            AND due.`available_at` <= NOW(6)))
ORDER BY due.`status`, due.`available_at`, due.`event_id`
LIMIT ?
FOR UPDATE SKIP LOCKED;
