-- Purpose: markers old enough to be forgotten whose transactions are over: confirmed, or rolled back.
-- Locks: none of its own.
-- Index: `consign_transaction_open`, a range for each kind.
-- Guards: the ages. A rollback marker is never put off, so that its date is the one it was made at.
SELECT "transaction_key" AS transaction_key
FROM (
    SELECT "transaction_key"
    FROM "consign_transaction"
    WHERE "confirmed_at" < strftime('%Y-%m-%d %H:%M:%f000', 'now', ?1)
    ORDER BY "confirmed_at"
    LIMIT ?2
)
UNION ALL
SELECT "transaction_key"
FROM (
    SELECT "transaction_key"
    FROM "consign_transaction"
    WHERE "confirmed_at" IS NULL
        AND "state" = 'ROLLED_BACK'
        AND "due_at" < strftime('%Y-%m-%d %H:%M:%f000', 'now', ?1)
    ORDER BY "due_at"
    LIMIT ?2
);
