-- Purpose: markers old enough to be forgotten whose transactions are over: confirmed, or rolled back.
-- Locks: none.
-- Index: `idx_open`, a range for each kind.
-- Guards: the ages. A rollback marker is never put off, so that its date is the one it was made at.
(
    SELECT `transaction_key` AS transaction_key
    FROM `consign_transaction`
    WHERE `confirmed_at` < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
    ORDER BY `confirmed_at`
    LIMIT ?
)
UNION ALL
(
    SELECT `transaction_key` AS transaction_key
    FROM `consign_transaction`
    WHERE `confirmed_at` IS NULL
        AND `state` = 'ROLLED_BACK'
        AND `due_at` < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
    ORDER BY `due_at`
    LIMIT ?
);
