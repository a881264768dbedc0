-- Purpose: claimed rows whose lease has ended.
-- Locks: the write lock, held since BEGIN IMMEDIATE.
-- Index: `idx_pending`, its status part: only rows in flight are read.
-- Guards: a claimed row without an end was written by something else and would stay for ever.
SELECT "event_id" AS event_id,
    CAST(COALESCE("attempts", 0) AS INTEGER) AS attempts
FROM "outbox_event"
WHERE "status" = 'SENDING'
    AND ("locked_until" <= strftime('%Y-%m-%d %H:%M:%f000', 'now') OR "locked_until" IS NULL)
    AND typeof("event_id") = 'text'
LIMIT ?;
