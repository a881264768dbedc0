-- Purpose: how many committed transactions are not confirmed, and since when the oldest of them.
-- Locks: none.
-- Index: `consign_transaction_open`, which has all columns that are read.
SELECT COUNT(*) AS unconfirmed,
    CAST(ROUND((julianday('now') - julianday(MIN("created_at"))) * 86400000.0) AS INTEGER) * 1000 AS oldest_micros
FROM "consign_transaction"
WHERE "confirmed_at" IS NULL
    AND "state" = 'COMMITTED';
