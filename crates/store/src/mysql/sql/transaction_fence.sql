-- Purpose: the rollback marker of a transaction that is not there after its time: the answer and the fence in one write.
-- Locks: the new row. While a local transaction holds the key uncommitted it waits, up to the session's lock wait.
-- Guards: the primary key, never a SELECT before: a local transaction may commit in between.
INSERT INTO `consign_transaction` (
    `transaction_key`,
    `state`,
    `topic`,
    `attempts`,
    `created_at`,
    `due_at`
)
VALUES (
    ?,
    'ROLLED_BACK',
    ?,
    0,
    UTC_TIMESTAMP(6),
    UTC_TIMESTAMP(6)
);
