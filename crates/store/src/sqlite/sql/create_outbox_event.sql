-- Purpose: the outbox with every optional column.
-- Why: text keys compare byte by byte in SQLite's BINARY collation, so that Order:42, order:42 and 'order:42 ' stay
--   three keys. Dates are text in UTC with microseconds, so that they sort by time. A payload is declared BLOB, which
--   to SQLite means "as it was written": JSON text stays text, byte by byte; a JSON column would turn 1.10 into 1.1.
--   `sequence` is the order within an aggregate; only an INTEGER PRIMARY KEY counts by itself in SQLite.
CREATE TABLE "outbox_event" (
    "sequence" INTEGER PRIMARY KEY AUTOINCREMENT,
    "event_id" VARCHAR(64) NOT NULL,
    "aggregate_type" VARCHAR(64) NULL,
    "aggregate_id" VARCHAR(128) NULL,
    "aggregate_version" BIGINT NULL,
    "event_type" VARCHAR(64) NOT NULL,
    "business_key" VARCHAR(128) NULL,
    "payload" BLOB NULL,
    "headers" TEXT NULL,
    "destination" VARCHAR(64) NULL,
    "route_key" VARCHAR(255) NULL,
    "status" VARCHAR(16) NOT NULL DEFAULT 'NEW',
    "attempts" INT NOT NULL DEFAULT 0,
    "available_at" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    "lease_token" VARCHAR(64) NULL,
    "locked_until" TEXT NULL,
    "last_outcome" VARCHAR(16) NULL,
    "last_error" VARCHAR(1024) NULL,
    "created_at" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    "sent_at" TEXT NULL,
    UNIQUE ("event_id")
);
CREATE INDEX "idx_pending" ON "outbox_event" ("status", "available_at", "event_id");
-- ? ordered: CREATE INDEX "idx_aggregate" ON "outbox_event" ("aggregate_id", "status", "sequence", "aggregate_type");
