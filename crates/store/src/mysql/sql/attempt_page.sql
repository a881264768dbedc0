-- Purpose: the oldest attempts, and whether each is old enough to go.
-- Locks: none.
-- Index: primary key, in order: attempts are numbered as they are recorded.
SELECT `attempt_id` AS attempt_id,
    `recorded_at` < CAST(? AS DATETIME(6)) AS old
FROM `consign_attempt`
ORDER BY `attempt_id`
LIMIT ?;
