-- Purpose: swept rows that reached the attempts cap.
-- Locks: the write lock, held by the sweep.
-- Index: the unique index on event_id.
-- Guards: `status`, and the caller compares the affected rows with the ids.
UPDATE "outbox_event"
SET "status" = 'DEAD',
    "lease_token" = NULL,
    "locked_until" = NULL
-- ? last_outcome: , "last_outcome" = 'swept'
-- ? last_error: , "last_error" = COALESCE(?, "last_error")
WHERE "event_id" IN (?)
    AND "status" = 'SENDING';
