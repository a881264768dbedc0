-- Purpose: how many operations were applied, for as long as markers are kept.
-- Locks: none.
-- Index: primary key.
SELECT COUNT(*)
FROM "consumed_operation";
