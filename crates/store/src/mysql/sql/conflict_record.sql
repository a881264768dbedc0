-- Purpose: records a key that came again with other content; the same content again raises the count.
-- Locks: the row.
-- Why: the digest of the content is part of the key, so ON DUPLICATE KEY hides nothing here. A repeat reopens a
--   resolved conflict.
INSERT INTO `consign_conflict` (
    `consumer_name`,
    `business_key`,
    `content_digest`,
    `event_id`,
    `existing_event_id`,
    `comparison`,
    `existing`,
    `source`,
    `payload`,
    `payload_bytes`,
    `count`,
    `first_seen_at`,
    `last_seen_at`
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, NOW(6), NOW(6))
ON DUPLICATE KEY UPDATE
    `count` = `count` + 1,
    `last_seen_at` = NOW(6),
    `resolved_at` = NULL,
    `resolution` = NULL;
