-- Purpose: puts a delivery aside that cannot be processed; the same delivery again raises the count.
-- Locks: the write lock.
-- Why: the digest of message id and body is part of the key, so ON CONFLICT hides nothing here. The payload is written
--   again, since an earlier version of consign cut it.
INSERT INTO "consign_dead_delivery" (
    "consumer_name",
    "content_digest",
    "business_key",
    "message_id",
    "message_type",
    "source",
    "reason",
    "attempts",
    "headers",
    "payload",
    "payload_bytes",
    "count",
    "first_seen_at",
    "last_seen_at"
)
VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1,
    strftime('%Y-%m-%d %H:%M:%f000', 'now'),
    strftime('%Y-%m-%d %H:%M:%f000', 'now')
)
ON CONFLICT ("consumer_name", "content_digest") DO UPDATE
SET "count" = "count" + 1,
    "last_seen_at" = excluded."last_seen_at",
    "reason" = excluded."reason",
    "attempts" = excluded."attempts",
    "payload" = excluded."payload",
    "resolved_at" = NULL,
    "resolution" = NULL;
