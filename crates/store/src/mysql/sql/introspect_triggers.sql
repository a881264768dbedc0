-- Purpose: how many triggers a table has, as far as the user may see them.
-- Locks: none.
SELECT CAST(COUNT(*) AS CHAR)
FROM information_schema.TRIGGERS
WHERE EVENT_OBJECT_SCHEMA = COALESCE(?, DATABASE())
    AND EVENT_OBJECT_TABLE = ?;
