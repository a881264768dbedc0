-- Purpose: ends migrate_lock.sql.
-- Locks: none.
SELECT CAST(RELEASE_LOCK(CONCAT('consign-migrate-', LEFT(SHA2(DATABASE(), 256), 32))) AS CHAR);
