-- Purpose: the fence of an ordered claim: the partitions this relay still holds, with their tokens.
-- Locks: its rows, shared, until the claim commits: a partition changes hands between two claims, never during one.
-- Index: primary key.
-- Guards: the lease counts by the database's clock; the caller compares the tokens.
SELECT `partition_number` AS partition_number,
    `token` AS token
FROM `consign_partition`
WHERE `outbox` = ?
    AND `partition_count` = ?
    AND `relay` = ?
    AND `lease_until` > NOW(6)
LOCK IN SHARE MODE;
