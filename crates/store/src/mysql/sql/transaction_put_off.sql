-- Purpose: puts off the next look at the transactions just read.
-- Locks: rows by primary key; they are locked already.
-- Index: primary key.
UPDATE `consign_transaction`
SET `due_at` = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND,
    `attempts` = `attempts` + 1
WHERE `transaction_key` IN (?);
