-- Purpose: dead deliveries for people, the oldest first: one of them, or those that a filter lets through.
-- Locks: none; the write lock when one is about to be resolved.
-- Index: primary key.
SELECT "id" AS id,
    "consumer_name" AS consumer_name,
    "business_key" AS business_key,
    "message_id" AS message_id,
    "message_type" AS message_type,
    "source" AS source,
    "reason" AS reason,
    "attempts" AS attempts,
    "headers" AS headers,
    substr("payload", 1, ?) AS payload,
    "payload_bytes" AS payload_bytes,
    "count" AS count,
    "first_seen_at" AS first_seen_at,
    "last_seen_at" AS last_seen_at,
    "resolved_at" AS resolved_at,
    "resolution" AS resolution
FROM "consign_dead_delivery"
WHERE "id" > 0
-- ? id:     AND "id" = ?
-- ? consumer:     AND "consumer_name" = ?
-- ? event_type:     AND "message_type" = ?
-- ? reason_contains:     AND instr("reason", ?) > 0
-- ? older_than:     AND "last_seen_at" <= strftime('%Y-%m-%d %H:%M:%f000', 'now', ?)
-- ? unresolved:     AND "resolved_at" IS NULL
ORDER BY "id"
LIMIT ?;
