-- Purpose: one migration at a time per database; the name is short enough for any database's name.
-- Locks: a named lock of the session, until it is released or the connection ends.
SELECT CAST(GET_LOCK(CONCAT('consign-migrate-', LEFT(SHA2(DATABASE(), 256), 32)), 30) AS CHAR);
