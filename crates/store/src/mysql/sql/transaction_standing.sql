-- Purpose: how many committed transactions are not confirmed, and since when the oldest of them.
-- Locks: none.
-- Index: `idx_open`, which has all columns that are read.
SELECT COUNT(*) AS unconfirmed,
    TIMESTAMPDIFF(MICROSECOND, MIN(`created_at`), UTC_TIMESTAMP(6)) AS oldest_micros
FROM `consign_transaction`
WHERE `confirmed_at` IS NULL
    AND `state` = 'COMMITTED';
