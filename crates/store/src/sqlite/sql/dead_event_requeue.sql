-- Purpose: gives dead events another life: due now, with all their attempts.
-- Locks: the write lock, held by the action.
-- Index: the unique index on event_id.
-- Guards: `status`: only a dead event comes back; the caller compares the affected rows with the ids.
UPDATE "outbox_event"
SET "status" = 'NEW',
    "attempts" = 0,
    "available_at" = strftime('%Y-%m-%d %H:%M:%f000', 'now'),
    "lease_token" = NULL,
    "locked_until" = NULL
-- ? last_outcome:     , "last_outcome" = 'requeued'
WHERE "event_id" IN (?)
    AND "status" = 'DEAD';
