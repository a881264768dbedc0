-- Purpose: deletes old attempts.
-- Locks: the write lock, for one batch.
-- Index: primary key.
-- Guards: the date, so that a young row between two old ones stays.
DELETE FROM "consign_attempt"
WHERE "attempt_id" BETWEEN ? AND ?
    AND "recorded_at" < ?;
