-- Purpose: puts events aside for good.
-- Locks: the write lock, held by the action.
-- Index: the unique index on event_id.
-- Guards: `status`: an event on its way or sent is not touched; the caller compares the affected
--   rows with the ids.
UPDATE "outbox_event"
SET "status" = 'DISCARDED',
    "lease_token" = NULL,
    "locked_until" = NULL
-- ? last_outcome:     , "last_outcome" = 'discarded'
WHERE "event_id" IN (?)
    AND "status" IN ('NEW', 'DEAD');
