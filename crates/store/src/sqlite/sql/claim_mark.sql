-- Purpose: gives the rows just read to this claim: SENDING under its token, the lease counted from SQLite's clock.
-- Locks: the write lock, held by the claim.
-- Index: the unique index on event_id.
-- Guards: `status` = 'NEW', and the caller compares the affected rows with the ids: a difference rolls back.
--   The attempts stop at 2^31 - 1, so that no counter can make a row unclaimable.
UPDATE "outbox_event"
SET "status" = 'SENDING',
    "lease_token" = ?,
    "locked_until" = strftime('%Y-%m-%d %H:%M:%f000', 'now', ?),
    "attempts" = MIN(CAST(COALESCE("attempts", 0) AS INTEGER) + 1, 2147483647)
WHERE "event_id" IN (?)
    AND "status" = 'NEW';
