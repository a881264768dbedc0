-- Purpose: lets a delivery wait here instead of in front of its queue.
-- Locks: the row.
-- Index: `idx_content`.
-- Why: the digest of message id and body is part of the key, so ON DUPLICATE KEY hides nothing here: the same message
--   waits once, for its newest reason, and whoever held it under a lease no longer does.
INSERT INTO `consign_parked_delivery` (
    `consumer_name`,
    `content_digest`,
    `business_key`,
    `message_id`,
    `message_type`,
    `source`,
    `headers`,
    `payload`,
    `reason`,
    `detail`,
    `attempts`,
    `aggregate`,
    `version`,
    `due_at`,
    `parked_at`
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NOW(6) + INTERVAL ? MICROSECOND, NOW(6))
ON DUPLICATE KEY UPDATE
    `business_key` = VALUES(`business_key`),
    `reason` = VALUES(`reason`),
    `detail` = VALUES(`detail`),
    `attempts` = VALUES(`attempts`),
    `aggregate` = VALUES(`aggregate`),
    `version` = VALUES(`version`),
    `due_at` = VALUES(`due_at`),
    `lease_token` = NULL,
    `locked_until` = NULL;
