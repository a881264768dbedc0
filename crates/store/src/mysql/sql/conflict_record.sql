-- Purpose: records a key that came again with other content; the same content again raises the count.
-- Locks: the row.
-- Why: the digest of the content is part of the key, so ON DUPLICATE KEY hides nothing here. A repeat reopens a
--   resolved conflict, with the message that came now.
INSERT INTO `consign_conflict` (
    `consumer_name`,
    `business_key`,
    `content_digest`,
    `event_id`,
    `existing_event_id`,
    `comparison`,
    `existing`,
    `message_id`,
    `message_type`,
    `source`,
    `headers`,
    `payload`,
    `payload_bytes`,
    `existing_payload`,
    `existing_payload_bytes`,
    `count`,
    `first_seen_at`,
    `last_seen_at`
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, NOW(6), NOW(6))
ON DUPLICATE KEY UPDATE
    `count` = `count` + 1,
    `last_seen_at` = NOW(6),
    `event_id` = VALUES(`event_id`),
    `existing_event_id` = VALUES(`existing_event_id`),
    `existing` = VALUES(`existing`),
    `message_id` = VALUES(`message_id`),
    `message_type` = VALUES(`message_type`),
    `source` = VALUES(`source`),
    `headers` = VALUES(`headers`),
    `payload` = VALUES(`payload`),
    `payload_bytes` = VALUES(`payload_bytes`),
    `existing_payload` = COALESCE(VALUES(`existing_payload`), `existing_payload`),
    `existing_payload_bytes` = COALESCE(VALUES(`existing_payload_bytes`), `existing_payload_bytes`),
    `resolved_at` = NULL,
    `resolution` = NULL;
