-- Purpose: how many partitions each relay holds; those of no relay, or of one that is no longer heard of, without a name.
-- Locks: none.
-- Index: primary key.
SELECT CASE WHEN `lease_until` > NOW(6) THEN `relay` END AS holder,
    COUNT(*) AS partitions
FROM `consign_partition`
WHERE `outbox` = ?
    AND `partition_count` = ?
GROUP BY holder
ORDER BY holder;
