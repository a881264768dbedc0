-- Purpose: claimed rows whose lease has ended.
-- Locks: the index entries and rows that match, at most LIMIT; READ COMMITTED releases the others at once.
-- Index: `idx_pending`, its status part: only rows in flight are read.
-- Guards: SKIP LOCKED, since a locked row is just being settled or swept. A claimed row without an end was written
--   by something else and would stay for ever.
SELECT `event_id` AS event_id,
    CAST(COALESCE(`attempts`, 0) AS SIGNED) AS attempts
FROM `outbox_event`
WHERE `status` = 'SENDING'
    AND (`locked_until` <= NOW(6) OR `locked_until` IS NULL)
LIMIT ?
FOR UPDATE SKIP LOCKED;
