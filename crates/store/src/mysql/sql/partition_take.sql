-- Purpose: gives partitions to a relay under a token nobody had before.
-- Locks: rows by primary key ascending; they are locked already.
-- Index: primary key.
UPDATE `consign_partition`
SET `relay` = ?,
    `token` = ?,
    `lease_until` = NOW(6) + INTERVAL ? MICROSECOND
WHERE `outbox` = ?
    AND `partition_count` = ?
    AND `partition_number` IN (?);
