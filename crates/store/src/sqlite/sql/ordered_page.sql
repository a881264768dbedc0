-- Purpose: the due rows of an ordered claim, the longest waiting first, each with what holds its aggregate up.
-- Locks: the write lock, held since BEGIN IMMEDIATE; a look before that takes none.
-- Index: `idx_pending` for the rows, then a few entries of `idx_aggregate` for each: its first entry of a status is the
--   earliest row.
-- Guards: only ids that are text can be settled by text. Rows without an aggregate are their own heads. DEAD rows
--   are looked for only when there are any.
SELECT due."event_id" AS event_id,
    COALESCE((SELECT earliest."event_id" FROM "outbox_event" AS earliest
        WHERE earliest."aggregate_id" = due."aggregate_id"
-- ? aggregate_type: AND earliest."aggregate_type" IS due."aggregate_type"
            AND earliest."status" = 'NEW'
        ORDER BY earliest."aggregate_id"
            , earliest."created_at", earliest."event_id" -- ? !sequence
-- ? sequence: , earliest."sequence"
        LIMIT 1), due."event_id") AS head,
    EXISTS (SELECT 1 FROM "outbox_event" AS sending
        WHERE sending."aggregate_id" = due."aggregate_id"
-- ? aggregate_type: AND sending."aggregate_type" IS due."aggregate_type"
            AND sending."status" = 'SENDING') AS held,
    0 AS dead, -- ? !block
-- ? block: EXISTS (SELECT 1 FROM "outbox_event" AS any_dead WHERE any_dead."status" = 'DEAD')
-- ? block: AND EXISTS (SELECT 1 FROM "outbox_event" AS dead
-- ? block: WHERE dead."aggregate_id" = due."aggregate_id" AND dead."status" = 'DEAD'
-- ? block_typed: AND dead."aggregate_type" IS due."aggregate_type"
-- ? block_sequence: AND dead."sequence" < due."sequence"
-- ? block_created: AND (COALESCE(dead."created_at", '1000-01-01'), dead."event_id")
-- ? block_created: < (COALESCE(due."created_at", '1000-01-01'), due."event_id")
-- ? block: ) AS dead,
    0 AS wait_micros,
    due.payload_bytes AS payload_bytes,
    CAST(COALESCE(due."attempts", 0) AS INTEGER) AS attempts
-- ? last_outcome: , due."last_outcome" AS last_outcome
FROM (
    SELECT "event_id", octet_length("payload") AS payload_bytes, "aggregate_id", "attempts", "available_at", "created_at"
-- ? aggregate_type: , "aggregate_type"
-- ? sequence: , "sequence"
-- ? last_outcome: , "last_outcome"
    FROM "outbox_event" AS waiting
    WHERE "status" = 'NEW'
        AND "available_at" <= strftime('%Y-%m-%d %H:%M:%f000', 'now')
        AND typeof("event_id") = 'text'
    ORDER BY "available_at", "event_id"
    LIMIT ?
) AS due
ORDER BY due."available_at", due."event_id";
