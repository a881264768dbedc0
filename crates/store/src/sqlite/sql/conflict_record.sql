-- Purpose: records a key that came again with other content; the same content again raises the count.
-- Locks: the write lock.
-- Why: the digest of the content is part of the key, so ON CONFLICT hides nothing here. A repeat reopens a resolved
--   conflict, with the message that came now.
INSERT INTO "consign_conflict" (
    "consumer_name",
    "business_key",
    "content_digest",
    "event_id",
    "existing_event_id",
    "comparison",
    "existing",
    "message_id",
    "message_type",
    "source",
    "headers",
    "payload",
    "payload_bytes",
    "existing_payload",
    "existing_payload_bytes",
    "count",
    "first_seen_at",
    "last_seen_at"
)
VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1,
    strftime('%Y-%m-%d %H:%M:%f000', 'now'),
    strftime('%Y-%m-%d %H:%M:%f000', 'now')
)
ON CONFLICT ("consumer_name", "business_key", "content_digest") DO UPDATE
SET "count" = "count" + 1,
    "last_seen_at" = excluded."last_seen_at",
    "event_id" = excluded."event_id",
    "existing_event_id" = excluded."existing_event_id",
    "existing" = excluded."existing",
    "message_id" = excluded."message_id",
    "message_type" = excluded."message_type",
    "source" = excluded."source",
    "headers" = excluded."headers",
    "payload" = excluded."payload",
    "payload_bytes" = excluded."payload_bytes",
    "existing_payload" = COALESCE(excluded."existing_payload", "existing_payload"),
    "existing_payload_bytes" = COALESCE(excluded."existing_payload_bytes", "existing_payload_bytes"),
    "resolved_at" = NULL,
    "resolution" = NULL;
