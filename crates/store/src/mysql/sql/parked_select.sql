-- Purpose: parked deliveries whose time has come, oldest first.
-- Locks: the index entries and rows read, in (due_at, id) order; READ COMMITTED releases those under a lease at once.
-- Index: `idx_due`, without a sort: a sort would lock every due row. The table is consign's own, so the index is there
--   to be named.
-- Guards: SKIP LOCKED, so that consumers never wait for each other. Rows under a lease that runs are somebody else's.
SELECT `id` AS id
FROM `consign_parked_delivery` FORCE INDEX (`idx_due`)
WHERE `consumer_name` = ?
    AND `due_at` <= NOW(6)
    AND (`locked_until` IS NULL OR `locked_until` <= NOW(6))
ORDER BY `due_at`, `id`
LIMIT ?
FOR UPDATE SKIP LOCKED;
