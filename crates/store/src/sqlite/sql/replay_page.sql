-- Purpose: the next rows in the order of a replay's walk, and which of them are chosen.
-- Locks: none.
-- Index: the unique index on event_id, in order; with a sequence the primary key.
-- Guards: the walk reads every row once, so that a page costs the same however few rows are chosen, and a row that was
--   replayed lies behind it.
SELECT
    "event_id" AS position, -- ? !sequence
-- ? sequence: CAST("sequence" AS TEXT) AS position,
    "event_id" AS event_id,
    CAST("created_at" AS TEXT) AS at, -- ? !sent_at
-- ? sent_at: CAST(COALESCE("sent_at", "created_at") AS TEXT) AS at,
    CAST((julianday('now') - julianday("created_at")) * 86400.0 AS INTEGER) AS age, -- ? !sent_at
-- ? sent_at: CAST((julianday('now') - julianday(COALESCE("sent_at", "created_at"))) * 86400.0 AS INTEGER) AS age,
    COALESCE(typeof("event_id") = 'text' AND "status" = 'SENT'
-- ? by_event_type: AND "event_type" = ?
-- ? by_destination: AND "destination" = ?
-- ? by_aggregate: AND "aggregate_id" = ?
-- ? by_from: AND
-- ? by_from_sent: COALESCE("sent_at", "created_at") >= ?
-- ? by_from_created: "created_at" >= ?
-- ? by_until: AND
-- ? by_until_sent: COALESCE("sent_at", "created_at") <= ?
-- ? by_until_created: "created_at" <= ?
        , 0) AS chosen
FROM "outbox_event"
WHERE "event_id" IS NOT NULL
-- ? by_id: AND "event_id" IN (?)
-- ? after_sequence: AND "sequence" > ?
-- ? after_id: AND "event_id" > ?
ORDER BY
    "event_id" -- ? !sequence
-- ? sequence: "sequence"
LIMIT ?;
