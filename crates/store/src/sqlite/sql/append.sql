-- Purpose: appends events inside the producer's own transaction.
-- Locks: the database's write lock, which the producer's transaction holds.
-- Why: dates come from SQLite's clock, in UTC and in one text form that sorts by time.
INSERT INTO "outbox_event" (
    "event_id",
    "aggregate_id",
    "event_type",
    "payload",
    "status",
    "attempts",
    "available_at",
    "created_at"
-- ? aggregate_type: , "aggregate_type"
-- ? aggregate_version: , "aggregate_version"
-- ? business_key: , "business_key"
-- ? headers: , "headers"
-- ? destination: , "destination"
-- ? route_key: , "route_key"
)
VALUES
-- @row
(
    ?,
    ?,
    ?,
    ?,
    'NEW',
    0,
    strftime('%Y-%m-%d %H:%M:%f000', 'now', ?),
    strftime('%Y-%m-%d %H:%M:%f000', 'now')
-- ? aggregate_type: , ?
-- ? aggregate_version: , ?
-- ? business_key: , ?
-- ? headers: , ?
-- ? destination: , ?
-- ? route_key: , ?
)
-- @end
;
