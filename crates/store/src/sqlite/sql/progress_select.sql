-- Purpose: how far a consumer came with an aggregate.
-- Locks: the write lock, held since BEGIN IMMEDIATE: nobody advances it before the unit ends.
-- Index: primary key.
SELECT "version",
    "state"
FROM "consign_progress"
WHERE "consumer_name" = ?
    AND "aggregate" = ?;
