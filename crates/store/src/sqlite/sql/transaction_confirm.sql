-- Purpose: notes that a transaction's message was found, and drops the copy that was kept until then.
-- Locks: the write lock.
-- Index: primary key.
-- Guards: only a committed marker can be confirmed, and once.
UPDATE "consign_transaction"
SET "evidence" = ?,
    "confirmed_at" = strftime('%Y-%m-%d %H:%M:%f000', 'now'),
    "headers" = NULL,
    "payload" = NULL
WHERE "transaction_key" = ?
    AND "state" = 'COMMITTED'
    AND "confirmed_at" IS NULL;
