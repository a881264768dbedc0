-- Purpose: all partitions of an outbox, for a relay that looks what to keep, take and give up.
-- Locks: the rows by primary key ascending, so that relays look one after the other, and not during a claim.
-- Index: primary key.
SELECT `partition_number` AS partition_number,
    `relay` AS relay,
    `token` AS token,
    COALESCE(`lease_until` > NOW(6), 0) AS live
FROM `consign_partition`
WHERE `outbox` = ?
    AND `partition_count` = ?
ORDER BY `partition_number`
FOR UPDATE;
