-- Purpose: rows given up.
-- Locks: the write lock, held by the settle.
-- Index: the unique index on event_id.
-- Guards: `status` and `lease_token`: a row that was swept, claimed again or settled is not touched.
UPDATE "outbox_event"
SET "status" = 'DEAD',
    "lease_token" = NULL,
    "locked_until" = NULL
-- ? last_outcome: , "last_outcome" = 'dead'
-- ? last_error: , "last_error" = COALESCE(?, "last_error")
WHERE "event_id" IN (?)
    AND "status" = 'SENDING'
    AND "lease_token" = ?;
