-- Purpose: committed markers that were never confirmed, and are so old that they are forgotten all the same.
-- Locks: none.
-- Index: `idx_open`, in order.
-- Guards: the age since the commit; what was put off lately is as old as it was.
SELECT `transaction_key` AS transaction_key
FROM `consign_transaction` FORCE INDEX (`idx_open`)
WHERE `confirmed_at` IS NULL
    AND `state` = 'COMMITTED'
    AND `created_at` < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
ORDER BY `due_at`
LIMIT ?;
