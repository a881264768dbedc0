-- Purpose: notes that a transaction's message was found, and drops the copy that was kept until then.
-- Locks: the row.
-- Index: primary key.
-- Guards: only a committed marker can be confirmed, and once.
UPDATE `consign_transaction`
SET `evidence` = ?,
    `confirmed_at` = UTC_TIMESTAMP(6),
    `headers` = NULL,
    `payload` = NULL
WHERE `transaction_key` = ?
    AND `state` = 'COMMITTED'
    AND `confirmed_at` IS NULL;
