-- Purpose: the committed marker of one key, and the server's time.
-- Locks: none.
-- Index: primary key.
-- Guards: one statement outside any transaction, in READ COMMITTED: a snapshot of its own.
SELECT (
        SELECT `state`
        FROM `consign_transaction`
        WHERE `transaction_key` = ?
    ) AS state,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now_micros;
