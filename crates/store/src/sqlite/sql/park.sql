-- Purpose: lets a delivery wait here instead of in front of its queue.
-- Locks: the write lock.
-- Why: the digest of message id and body is part of the key, so ON CONFLICT hides nothing here: the same message waits
--   once, for its newest reason, and whoever held it under a lease no longer does.
INSERT INTO "consign_parked_delivery" (
    "consumer_name",
    "content_digest",
    "business_key",
    "message_id",
    "message_type",
    "source",
    "headers",
    "payload",
    "reason",
    "detail",
    "attempts",
    "aggregate",
    "version",
    "due_at",
    "parked_at"
)
VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    strftime('%Y-%m-%d %H:%M:%f000', 'now', ?),
    strftime('%Y-%m-%d %H:%M:%f000', 'now')
)
ON CONFLICT ("consumer_name", "content_digest") DO UPDATE
SET "business_key" = excluded."business_key",
    "reason" = excluded."reason",
    "detail" = excluded."detail",
    "attempts" = excluded."attempts",
    "aggregate" = excluded."aggregate",
    "version" = excluded."version",
    "due_at" = excluded."due_at",
    "lease_token" = NULL,
    "locked_until" = NULL;
