-- Purpose: the rollback marker of a transaction that is not there after its time: the answer and the fence in one write.
-- Locks: the write lock. While a local transaction holds it this waits, up to the busy timeout.
-- Guards: the primary key, never a SELECT before: a local transaction may commit in between.
INSERT INTO "consign_transaction" (
    "transaction_key",
    "state",
    "topic",
    "attempts",
    "created_at",
    "due_at"
)
VALUES (
    ?,
    'ROLLED_BACK',
    ?,
    0,
    strftime('%Y-%m-%d %H:%M:%f000', 'now'),
    strftime('%Y-%m-%d %H:%M:%f000', 'now')
);
