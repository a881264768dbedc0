-- Purpose: the indexes of one table, their columns in order, and how those compare.
-- Locks: none.
SELECT list."name",
    list."unique",
    list."partial",
    part."name",
    part."coll"
FROM pragma_index_list(?, COALESCE(?, 'main')) AS list
JOIN pragma_index_xinfo(list."name", COALESCE(?, 'main')) AS part
WHERE part."key" = 1
ORDER BY list."seq", part."seqno";
