-- Purpose: committed transactions whose message nobody has found in its topic, and which are due for a look, oldest first.
-- Locks: the rows it gives, until they are put off in the same transaction.
-- Index: `idx_open`, in order.
-- Guards: SKIP LOCKED, so that instances side by side take different rows.
SELECT `transaction_key` AS transaction_key,
    `topic` AS topic,
    `event_id` AS event_id,
    `event_type` AS event_type,
    `business_key` AS business_key,
    `headers` AS headers,
    `payload` AS payload,
    `payload_digest` AS payload_digest,
    CAST(`attempts` AS SIGNED) AS attempts
FROM `consign_transaction` FORCE INDEX (`idx_open`)
WHERE `confirmed_at` IS NULL
    AND `state` = 'COMMITTED'
    AND `due_at` <= UTC_TIMESTAMP(6)
ORDER BY `due_at`
LIMIT ?
FOR UPDATE SKIP LOCKED;
