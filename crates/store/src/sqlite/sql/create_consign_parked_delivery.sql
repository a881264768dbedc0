-- Purpose: deliveries that wait for their next attempt, or for the step before them, instead of in front of a queue.
-- Why: payloads are kept whole, since the broker no longer has them; they come last, since SQLite reads a row up to the
--   last column that a statement wants.
CREATE TABLE IF NOT EXISTS "consign_parked_delivery" (
    "id" INTEGER PRIMARY KEY AUTOINCREMENT,
    "consumer_name" VARCHAR(128) NOT NULL,
    "content_digest" CHAR(64) NOT NULL,
    "business_key" VARCHAR(512) NULL,
    "message_id" VARCHAR(255) NULL,
    "message_type" VARCHAR(255) NULL,
    "source" VARCHAR(255) NOT NULL,
    "headers" TEXT NULL,
    "reason" VARCHAR(16) NOT NULL,
    "detail" VARCHAR(1024) NOT NULL,
    "attempts" INT NOT NULL,
    "aggregate" VARCHAR(255) NULL,
    "version" BIGINT NULL,
    "due_at" TEXT NOT NULL,
    "lease_token" VARCHAR(64) NULL,
    "locked_until" TEXT NULL,
    "parked_at" TEXT NOT NULL,
    "payload" BLOB NOT NULL,
    UNIQUE ("consumer_name", "content_digest")
);
CREATE INDEX IF NOT EXISTS "consign_parked_due" ON "consign_parked_delivery" ("consumer_name", "due_at");
CREATE INDEX IF NOT EXISTS "consign_parked_step"
    ON "consign_parked_delivery" ("consumer_name", "reason", "aggregate", "version");
