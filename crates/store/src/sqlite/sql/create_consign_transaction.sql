-- Purpose: the markers of transaction messages: the truth about each local transaction, and its fence.
-- Why: exactly one of COMMITTED and ROLLED_BACK can be there under a key. The message is kept until it was found in its
--   topic; it comes last, since SQLite reads a row up to the last column that a statement wants.
CREATE TABLE IF NOT EXISTS "consign_transaction" (
    "transaction_key" VARCHAR(255) NOT NULL,
    "state" VARCHAR(16) NOT NULL,
    "topic" VARCHAR(255) NOT NULL,
    "event_id" VARCHAR(255) NULL,
    "event_type" VARCHAR(255) NULL,
    "business_key" VARCHAR(255) NULL,
    "payload_digest" CHAR(64) NULL,
    "attempts" INT NOT NULL,
    "created_at" TEXT NOT NULL,
    "due_at" TEXT NOT NULL,
    "evidence" VARCHAR(16) NULL,
    "confirmed_at" TEXT NULL,
    "headers" TEXT NULL,
    "payload" BLOB NULL,
    PRIMARY KEY ("transaction_key")
);
CREATE INDEX IF NOT EXISTS "consign_transaction_open"
    ON "consign_transaction" ("confirmed_at", "state", "due_at", "created_at");
