-- Purpose: one migration at a time: what others changed meanwhile is seen, and a failed step takes all back.
-- Locks: the write lock, until migrate_unlock.sql.
BEGIN IMMEDIATE;
