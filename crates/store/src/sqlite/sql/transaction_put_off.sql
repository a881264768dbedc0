-- Purpose: puts off the next look at the transactions just read.
-- Locks: the write lock, held since BEGIN IMMEDIATE.
-- Index: primary key.
UPDATE "consign_transaction"
SET "due_at" = strftime('%Y-%m-%d %H:%M:%f000', 'now', ?),
    "attempts" = "attempts" + 1
WHERE "transaction_key" IN (?);
