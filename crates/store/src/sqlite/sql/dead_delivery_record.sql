-- Purpose: puts a delivery aside that cannot be processed; the same delivery again raises the count.
-- Locks: the write lock.
-- Why: the digest of message id and body is part of the key, so ON CONFLICT hides nothing here.
INSERT INTO "consign_dead_delivery" (
    "consumer_name",
    "content_digest",
    "business_key",
    "message_id",
    "message_type",
    "source",
    "reason",
    "headers",
    "payload",
    "payload_bytes",
    "count",
    "first_seen_at",
    "last_seen_at"
)
VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1,
    strftime('%Y-%m-%d %H:%M:%f000', 'now'),
    strftime('%Y-%m-%d %H:%M:%f000', 'now')
)
ON CONFLICT ("consumer_name", "content_digest") DO UPDATE
SET "count" = "count" + 1,
    "last_seen_at" = excluded."last_seen_at",
    "reason" = excluded."reason",
    "resolved_at" = NULL,
    "resolution" = NULL;
