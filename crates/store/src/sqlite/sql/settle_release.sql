-- Purpose: rows given back untried, or tried at a destination that was at fault; the claim's attempt is returned.
-- Locks: the write lock, held by the settle.
-- Index: the unique index on event_id.
-- Guards: `status` and `lease_token`: a row that was swept, claimed again or settled is not touched. The attempts
--   are computed from the row, never from a number read earlier.
UPDATE "outbox_event"
SET "status" = 'NEW',
    "lease_token" = NULL,
    "locked_until" = NULL,
    "attempts" = MAX("attempts", 1) - 1,
    "available_at" = strftime('%Y-%m-%d %H:%M:%f000', 'now', ?)
-- ? last_outcome: , "last_outcome" = 'released'
-- ? last_error: , "last_error" = COALESCE(?, "last_error")
WHERE "event_id" IN (?)
    AND "status" = 'SENDING'
    AND "lease_token" = ?;
