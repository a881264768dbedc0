-- Purpose: prolongs the lease of partitions a relay keeps.
-- Locks: rows by primary key ascending; they are locked already.
-- Index: primary key.
UPDATE `consign_partition`
SET `lease_until` = NOW(6) + INTERVAL ? MICROSECOND
WHERE `outbox` = ?
    AND `partition_count` = ?
    AND `partition_number` IN (?);
