-- Purpose: ends migrate_lock.sql.
-- Locks: none.
COMMIT;
