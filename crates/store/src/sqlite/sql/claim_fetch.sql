-- Purpose: the claimed rows in full, in the claim's transaction.
-- Locks: none of its own.
-- Index: the unique index on event_id.
-- Guards: the token, so that only rows of this very claim are read. Texts come as the bytes they are. Ages and dates
--   are computed here; the process never interprets a date.
SELECT "event_id" AS event_id,
    CAST(CAST("aggregate_id" AS TEXT) AS BLOB) AS aggregate_id,
    CAST("event_type" AS BLOB) AS event_type,
    CAST("payload" AS BLOB) AS payload,
    CAST("attempts" AS INTEGER) AS attempts,
    CAST(ROUND((julianday("created_at") - 2440587.5) * 86400000.0) AS INTEGER) * 1000 AS created_at_micros,
    CAST(ROUND((julianday('now') - julianday("created_at")) * 86400000.0) AS INTEGER) * 1000 AS age_micros
-- ? aggregate_type: , CAST("aggregate_type" AS BLOB) AS aggregate_type
-- ? aggregate_version: , CAST("aggregate_version" AS INTEGER) AS aggregate_version
-- ? destination: , CAST("destination" AS BLOB) AS destination
-- ? route_key: , CAST("route_key" AS BLOB) AS route_key
-- ? headers: , CAST("headers" AS BLOB) AS headers
-- ? business_key: , CAST("business_key" AS BLOB) AS business_key
FROM "outbox_event"
WHERE "event_id" IN (?)
    AND "lease_token" = ?;
