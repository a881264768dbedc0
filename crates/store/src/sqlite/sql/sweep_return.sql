-- Purpose: swept rows back to NEW, due a little later; the attempt counts, since the publish may have happened.
-- Locks: the write lock, held by the sweep.
-- Index: the unique index on event_id.
-- Guards: `status`, and the caller compares the affected rows with the ids.
UPDATE "outbox_event"
SET "status" = 'NEW',
    "lease_token" = NULL,
    "locked_until" = NULL,
    "available_at" = strftime('%Y-%m-%d %H:%M:%f000', 'now', ?)
-- ? last_outcome: , "last_outcome" = 'swept'
-- ? last_error: , "last_error" = COALESCE(?, "last_error")
WHERE "event_id" IN (?)
    AND "status" = 'SENDING';
