-- Purpose: the marker of a local transaction, inserted in this transaction itself.
-- Locks: the new row, until the local transaction ends; a fence under the same key waits for it.
-- Guards: the primary key. A rollback marker refuses it, also one that this transaction's snapshot does not show.
-- Why: UTC, whatever zone the producer's session has.
INSERT INTO `consign_transaction` (
    `transaction_key`,
    `state`,
    `topic`,
    `event_id`,
    `event_type`,
    `business_key`,
    `headers`,
    `payload`,
    `payload_digest`,
    `attempts`,
    `created_at`,
    `due_at`
)
VALUES (
    ?,
    'COMMITTED',
    ?,
    ?,
    ?,
    ?,
    ?,
    ?,
    ?,
    0,
    UTC_TIMESTAMP(6),
    UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
);
