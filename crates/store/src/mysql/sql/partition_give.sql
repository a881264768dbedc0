-- Purpose: partitions a relay gives up are nobody's.
-- Locks: rows by primary key ascending; at a rebalance they are locked already.
-- Index: primary key.
-- Guards: the relay's name, which is new for each of its lives: what another one took meanwhile stays with that one.
UPDATE `consign_partition`
SET `relay` = NULL,
    `token` = NULL,
    `lease_until` = NULL
WHERE `outbox` = ?
    AND `partition_count` = ?
    AND `relay` = ?
    AND `partition_number` IN (?);
