-- Purpose: events for people, the oldest first: one of them, whatever its status, or the dead ones that a filter lets
--   through.
-- Locks: none.
-- Index: `idx_pending`, its DEAD part; for one event the unique index on event_id.
SELECT "event_id" AS event_id,
    "status" AS status,
    CAST("event_type" AS TEXT) AS event_type,
    CAST("aggregate_id" AS TEXT) AS aggregate_id,
    CAST(COALESCE("attempts", 0) AS INTEGER) AS attempts,
    substr(CAST("payload" AS BLOB), 1, ?) AS payload,
    octet_length("payload") AS payload_bytes,
    CAST("created_at" AS TEXT) AS created_at
-- ? aggregate_type:     , CAST("aggregate_type" AS TEXT) AS aggregate_type
-- ? business_key:     , CAST("business_key" AS TEXT) AS business_key
-- ? destination:     , CAST("destination" AS TEXT) AS destination
-- ? last_error:     , CAST("last_error" AS TEXT) AS last_error
-- ? last_outcome:     , CAST("last_outcome" AS TEXT) AS last_outcome
FROM "outbox_event"
WHERE
    "status" = 'DEAD' -- ? !by_id
-- ? by_id:     "event_id" = ?
-- ? by_event_type:     AND "event_type" = ?
-- ? by_destination:     AND "destination" = ?
-- ? by_reason:     AND instr("last_error", ?) > 0
-- ? by_age:     AND "created_at" <= strftime('%Y-%m-%d %H:%M:%f000', 'now', ?)
ORDER BY "available_at", "event_id"
LIMIT ?;
