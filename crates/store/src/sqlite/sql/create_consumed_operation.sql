-- Purpose: the markers of applied operations, compared by fingerprint. Comparison columns are the user's own: add
--   them before the first consumer runs, for instance "user_id" BIGINT and "amount" INT.
-- Why: keys compare byte by byte, see create_outbox_event.sql. SQLite lets a primary key hold NULL unless it is told.
CREATE TABLE "consumed_operation" (
    "consumer_name" VARCHAR(64) NOT NULL,
    "business_key" VARCHAR(128) NOT NULL,
    "event_id" VARCHAR(255) NULL,
    "fingerprint" CHAR(64) NULL,
    "aggregate_version" BIGINT NULL,
    "comparison_version" INT NULL,
    "applied_at" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    PRIMARY KEY ("consumer_name", "business_key")
);
