-- Purpose: conflicts for people, the newest first: one of them, or those that a filter lets through.
-- Locks: none; the write lock when one is about to be resolved.
-- Index: primary key.
SELECT "id" AS id,
    "consumer_name" AS consumer_name,
    "business_key" AS business_key,
    "event_id" AS event_id,
    "existing_event_id" AS existing_event_id,
    "comparison" AS comparison,
    "existing" AS existing,
    "message_id" AS message_id,
    "message_type" AS message_type,
    "source" AS source,
    "headers" AS headers,
    substr("payload", 1, ?) AS payload,
    "payload_bytes" AS payload_bytes,
    substr("existing_payload", 1, ?) AS existing_payload,
    "existing_payload_bytes" AS existing_payload_bytes,
    "count" AS count,
    "first_seen_at" AS first_seen_at,
    "last_seen_at" AS last_seen_at,
    "resolved_at" AS resolved_at,
    "resolution" AS resolution
FROM "consign_conflict"
WHERE "id" > 0
-- ? id:     AND "id" = ?
-- ? consumer:     AND "consumer_name" = ?
-- ? key:     AND "business_key" = ?
-- ? unresolved:     AND "resolved_at" IS NULL
ORDER BY "id" DESC
LIMIT ?;
