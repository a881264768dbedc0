-- Purpose: gives the parked deliveries just read to one holder.
-- Locks: the write lock, held since BEGIN IMMEDIATE.
-- Index: primary key.
-- Guards: the caller compares the affected rows with the ids.
UPDATE "consign_parked_delivery"
SET "lease_token" = ?,
    "locked_until" = strftime('%Y-%m-%d %H:%M:%f000', 'now', ?)
WHERE "id" IN (?);
