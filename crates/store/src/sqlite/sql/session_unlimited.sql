-- Purpose: a longer wait for the write lock for a migration, which runs once and must come through.
-- Locks: none.
PRAGMA busy_timeout = 30000;
