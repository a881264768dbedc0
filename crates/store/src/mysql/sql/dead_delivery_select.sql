-- Purpose: dead deliveries for people, the oldest first: one of them, or those that a filter lets through.
-- Locks: none; the row when it is about to be resolved.
-- Index: `idx_id`, in order; the table is consign's own, so the index is there to be named.
SELECT `id` AS id,
    `consumer_name` AS consumer_name,
    `business_key` AS business_key,
    `message_id` AS message_id,
    `message_type` AS message_type,
    `source` AS source,
    `reason` AS reason,
    CAST(`attempts` AS SIGNED) AS attempts,
    `headers` AS headers,
    LEFT(`payload`, ?) AS payload,
    `payload_bytes` AS payload_bytes,
    `count` AS count,
    DATE_FORMAT(`first_seen_at`, '%Y-%m-%d %H:%i:%s.%f') AS first_seen_at,
    DATE_FORMAT(`last_seen_at`, '%Y-%m-%d %H:%i:%s.%f') AS last_seen_at,
    DATE_FORMAT(`resolved_at`, '%Y-%m-%d %H:%i:%s.%f') AS resolved_at,
    `resolution` AS resolution
FROM `consign_dead_delivery` FORCE INDEX (`idx_id`)
WHERE `id` > 0
-- ? id: AND `id` = ?
-- ? consumer: AND `consumer_name` = ?
-- ? event_type: AND `message_type` = ?
-- ? reason_contains: AND LOCATE(?, `reason`) > 0
-- ? older_than: AND `last_seen_at` <= NOW(6) - INTERVAL ? MICROSECOND
-- ? unresolved: AND `resolved_at` IS NULL
ORDER BY `id`
LIMIT ?
-- ? locked: FOR UPDATE
;
