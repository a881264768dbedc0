-- Purpose: deliveries no consumer could process, for people to look at, and whole, so that they can be sent back.
-- Why: people name a dead delivery by its `id`; consign finds it by its content. The payload comes last,
--   since SQLite reads a row up to the last column that a statement wants.
CREATE TABLE IF NOT EXISTS "consign_dead_delivery" (
    "id" INTEGER PRIMARY KEY AUTOINCREMENT,
    "consumer_name" VARCHAR(128) NOT NULL,
    "content_digest" CHAR(64) NOT NULL,
    "business_key" VARCHAR(255) NULL,
    "message_id" VARCHAR(255) NULL,
    "message_type" VARCHAR(255) NULL,
    "source" VARCHAR(255) NOT NULL,
    "reason" VARCHAR(1024) NOT NULL,
    "attempts" INT NULL,
    "headers" TEXT NULL,
    "payload_bytes" BIGINT NOT NULL,
    "count" BIGINT NOT NULL,
    "first_seen_at" TEXT NOT NULL,
    "last_seen_at" TEXT NOT NULL,
    "resolved_at" TEXT NULL,
    "resolution" VARCHAR(255) NULL,
    "payload" BLOB NOT NULL,
    UNIQUE ("consumer_name", "content_digest")
);
