-- Purpose: whether a table exists, and of which kind it is.
-- Locks: none.
SELECT "type"
FROM pragma_table_list
WHERE "schema" = COALESCE(?, 'main') COLLATE NOCASE
    AND "name" = ? COLLATE NOCASE;
