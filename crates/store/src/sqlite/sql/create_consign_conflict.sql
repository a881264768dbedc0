-- Purpose: keys that came again with other content, one row for each content.
CREATE TABLE IF NOT EXISTS "consign_conflict" (
    "consumer_name" VARCHAR(64) NOT NULL,
    "business_key" VARCHAR(128) NOT NULL,
    "content_digest" CHAR(64) NOT NULL,
    "event_id" VARCHAR(255) NULL,
    "existing_event_id" VARCHAR(255) NULL,
    "comparison" TEXT NOT NULL,
    "existing" TEXT NOT NULL,
    "source" VARCHAR(255) NOT NULL,
    "payload" BLOB NOT NULL,
    "payload_bytes" BIGINT NOT NULL,
    "count" BIGINT NOT NULL,
    "first_seen_at" TEXT NOT NULL,
    "last_seen_at" TEXT NOT NULL,
    "resolved_at" TEXT NULL,
    "resolution" VARCHAR(255) NULL,
    PRIMARY KEY ("consumer_name", "business_key", "content_digest")
);
