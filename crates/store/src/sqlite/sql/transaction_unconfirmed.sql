-- Purpose: committed transactions whose message nobody has found in its topic, and which are due for a look, oldest first.
-- Locks: the write lock, held since BEGIN IMMEDIATE, until they are put off in the same transaction.
-- Index: `consign_transaction_open`, in order.
-- Guards: none needed: nobody else writes.
SELECT "transaction_key" AS transaction_key,
    "topic" AS topic,
    "event_id" AS event_id,
    "event_type" AS event_type,
    "business_key" AS business_key,
    "headers" AS headers,
    "payload" AS payload,
    "payload_digest" AS payload_digest,
    CAST("attempts" AS INTEGER) AS attempts
FROM "consign_transaction"
WHERE "confirmed_at" IS NULL
    AND "state" = 'COMMITTED'
    AND "due_at" <= strftime('%Y-%m-%d %H:%M:%f000', 'now')
ORDER BY "due_at"
LIMIT ?;
