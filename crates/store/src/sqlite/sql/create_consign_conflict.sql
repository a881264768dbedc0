-- Purpose: keys that came again with other content, one row for each content, with what it takes to process the
--   refused message after all.
-- Why: people name a conflict by its `id`; consign finds it by its key, compared byte by byte. Payloads
--   come last, since SQLite reads a row up to the last column that a statement wants.
CREATE TABLE IF NOT EXISTS "consign_conflict" (
    "id" INTEGER PRIMARY KEY AUTOINCREMENT,
    "consumer_name" VARCHAR(128) NOT NULL,
    "business_key" VARCHAR(512) NOT NULL,
    "content_digest" CHAR(64) NOT NULL,
    "event_id" VARCHAR(255) NULL,
    "existing_event_id" VARCHAR(255) NULL,
    "comparison" TEXT NOT NULL,
    "existing" TEXT NOT NULL,
    "message_id" VARCHAR(255) NULL,
    "message_type" VARCHAR(255) NULL,
    "source" VARCHAR(255) NOT NULL,
    "headers" TEXT NULL,
    "payload_bytes" BIGINT NOT NULL,
    "existing_payload_bytes" BIGINT NULL,
    "count" BIGINT NOT NULL,
    "first_seen_at" TEXT NOT NULL,
    "last_seen_at" TEXT NOT NULL,
    "resolved_at" TEXT NULL,
    "resolution" VARCHAR(255) NULL,
    "payload" BLOB NOT NULL,
    "existing_payload" BLOB NULL,
    UNIQUE ("consumer_name", "business_key", "content_digest")
);
