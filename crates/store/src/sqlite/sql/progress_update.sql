-- Purpose: a further step of an aggregate.
-- Locks: the write lock, held by the unit.
-- Index: primary key.
UPDATE "consign_progress"
SET "version" = ?,
    "state" = ?,
    "updated_at" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
WHERE "consumer_name" = ?
    AND "aggregate" = ?;
