-- Purpose: ends migrate_lock.sql.
-- Locks: none.
SELECT CAST(RELEASE_LOCK(CONCAT('consign-migrate-', MD5(DATABASE()))) AS CHAR);
