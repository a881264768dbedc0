-- Purpose: gives the parked deliveries just read to one holder.
-- Locks: rows by primary key; they are locked already.
-- Index: primary key.
-- Guards: the caller compares the affected rows with the ids.
UPDATE `consign_parked_delivery`
SET `lease_token` = ?,
    `locked_until` = NOW(6) + INTERVAL ? MICROSECOND
WHERE `id` IN (?);
