-- Purpose: conflicts for people, the newest first: one of them, or those that a filter lets through.
-- Locks: none; the row when it is about to be resolved.
-- Index: `idx_id`, in order; the table is consign's own, so the index is there to be named.
-- Why: LEFT cuts payloads at bytes, since they are binary.
SELECT `id` AS id,
    `consumer_name` AS consumer_name,
    `business_key` AS business_key,
    `event_id` AS event_id,
    `existing_event_id` AS existing_event_id,
    `comparison` AS comparison,
    `existing` AS existing,
    `message_id` AS message_id,
    `message_type` AS message_type,
    `source` AS source,
    `headers` AS headers,
    LEFT(`payload`, ?) AS payload,
    `payload_bytes` AS payload_bytes,
    LEFT(`existing_payload`, ?) AS existing_payload,
    `existing_payload_bytes` AS existing_payload_bytes,
    `count` AS count,
    DATE_FORMAT(`first_seen_at`, '%Y-%m-%d %H:%i:%s.%f') AS first_seen_at,
    DATE_FORMAT(`last_seen_at`, '%Y-%m-%d %H:%i:%s.%f') AS last_seen_at,
    DATE_FORMAT(`resolved_at`, '%Y-%m-%d %H:%i:%s.%f') AS resolved_at,
    `resolution` AS resolution
FROM `consign_conflict` FORCE INDEX (`idx_id`)
WHERE `id` > 0
-- ? id: AND `id` = ?
-- ? consumer: AND `consumer_name` = ?
-- ? key: AND `business_key` = ?
-- ? unresolved: AND `resolved_at` IS NULL
ORDER BY `id` DESC
LIMIT ?
-- ? locked: FOR UPDATE
;
