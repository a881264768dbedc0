-- Purpose: publish attempts that came to an end, and settlements that came too late.
CREATE TABLE IF NOT EXISTS "consign_attempt" (
    "attempt_id" INTEGER PRIMARY KEY AUTOINCREMENT,
    "event_id" VARCHAR(255) NOT NULL,
    "lease_token" VARCHAR(64) NOT NULL,
    "relay" VARCHAR(128) NOT NULL,
    "started_at" TEXT NULL,
    "recorded_at" TEXT NOT NULL,
    "outcome" VARCHAR(16) NOT NULL,
    "detail" VARCHAR(1024) NULL
);
CREATE INDEX IF NOT EXISTS "consign_attempt_event" ON "consign_attempt" ("event_id");
CREATE INDEX IF NOT EXISTS "consign_attempt_outcome" ON "consign_attempt" ("outcome", "recorded_at");
