-- Purpose: committed markers that were never confirmed, and are so old that they are forgotten all the same.
-- Locks: none of its own.
-- Index: `consign_transaction_open`, in order.
-- Guards: the age since the commit; what was put off lately is as old as it was.
SELECT "transaction_key" AS transaction_key
FROM "consign_transaction"
WHERE "confirmed_at" IS NULL
    AND "state" = 'COMMITTED'
    AND "created_at" < strftime('%Y-%m-%d %H:%M:%f000', 'now', ?)
ORDER BY "due_at"
LIMIT ?;
