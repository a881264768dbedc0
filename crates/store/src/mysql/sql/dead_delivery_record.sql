-- Purpose: puts a delivery aside that cannot be processed; the same delivery again raises the count.
-- Locks: the row.
-- Why: the digest of message id and body is part of the key, so ON DUPLICATE KEY hides nothing here. The payload is
--   written again, since an earlier version of consign cut it.
INSERT INTO `consign_dead_delivery` (
    `consumer_name`,
    `content_digest`,
    `business_key`,
    `message_id`,
    `message_type`,
    `source`,
    `reason`,
    `attempts`,
    `headers`,
    `payload`,
    `payload_bytes`,
    `count`,
    `first_seen_at`,
    `last_seen_at`
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, NOW(6), NOW(6))
ON DUPLICATE KEY UPDATE
    `count` = `count` + 1,
    `last_seen_at` = NOW(6),
    `reason` = VALUES(`reason`),
    `attempts` = VALUES(`attempts`),
    `payload` = VALUES(`payload`),
    `resolved_at` = NULL,
    `resolution` = NULL;
