-- Purpose: deletes old attempts.
-- Locks: the rows, by primary key ascending. New attempts are numbered higher.
-- Index: primary key.
-- Guards: the date, so that a young row between two old ones stays.
DELETE FROM `consign_attempt`
WHERE `attempt_id` BETWEEN ? AND ?
    AND `recorded_at` < CAST(? AS DATETIME(6));
