-- Purpose: whether a table exists, and its engine.
-- Locks: none.
SELECT CAST(ENGINE AS CHAR)
FROM information_schema.TABLES
WHERE TABLE_SCHEMA = COALESCE(?, DATABASE())
    AND TABLE_NAME = ?;
