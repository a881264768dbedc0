-- Purpose: the columns of one table, as SQLite has them.
-- Locks: none.
SELECT "name",
    "type",
    "notnull"
FROM pragma_table_info(?, COALESCE(?, 'main'))
ORDER BY "cid";
