-- Purpose: the marker of a local transaction, inserted in this transaction itself.
-- Locks: the file's write lock, which the local transaction holds until it ends; a fence waits for it.
-- Guards: the primary key: a rollback marker refuses it.
INSERT INTO "consign_transaction" (
    "transaction_key",
    "state",
    "topic",
    "event_id",
    "event_type",
    "business_key",
    "headers",
    "payload",
    "payload_digest",
    "attempts",
    "created_at",
    "due_at"
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
    strftime('%Y-%m-%d %H:%M:%f000', 'now'),
    strftime('%Y-%m-%d %H:%M:%f000', 'now', ?)
);
