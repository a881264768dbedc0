-- Purpose: the committed marker of one key, and the time.
-- Locks: none.
-- Index: primary key.
-- Guards: one statement in a snapshot of its own.
SELECT (
        SELECT "state"
        FROM "consign_transaction"
        WHERE "transaction_key" = ?
    ) AS state,
    CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 AS now_micros;
