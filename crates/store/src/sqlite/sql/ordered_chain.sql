-- Purpose: the earliest NEW rows of an aggregate, named by its head, in order, with what holds them up.
-- Locks: the write lock, held since BEGIN IMMEDIATE.
-- Index: the unique index on event_id for the head, then `idx_aggregate` up to LIMIT.
SELECT follower."event_id" AS event_id,
    head."event_id" AS head,
    EXISTS (SELECT 1 FROM "outbox_event" AS sending
        WHERE sending."aggregate_id" = head."aggregate_id"
-- ? aggregate_type: AND sending."aggregate_type" IS head."aggregate_type"
            AND sending."status" = 'SENDING') AS held,
    0 AS dead, -- ? !block
-- ? block: EXISTS (SELECT 1 FROM "outbox_event" AS dead
-- ? block: WHERE dead."aggregate_id" = head."aggregate_id" AND dead."status" = 'DEAD'
-- ? block_typed: AND dead."aggregate_type" IS head."aggregate_type"
-- ? block_sequence: AND dead."sequence" < follower."sequence"
-- ? block_created: AND (COALESCE(dead."created_at", '1000-01-01'), dead."event_id")
-- ? block_created: < (COALESCE(follower."created_at", '1000-01-01'), follower."event_id")
-- ? block: ) AS dead,
    CAST(ROUND((julianday(follower."available_at") - julianday('now')) * 86400000.0) AS INTEGER) * 1000 AS wait_micros,
    octet_length(follower."payload") AS payload_bytes,
    CAST(COALESCE(follower."attempts", 0) AS INTEGER) AS attempts
-- ? last_outcome: , follower."last_outcome" AS last_outcome
FROM "outbox_event" AS head
JOIN "outbox_event" AS follower
    ON follower."aggregate_id" = head."aggregate_id"
-- ? aggregate_type: AND follower."aggregate_type" IS head."aggregate_type"
        AND follower."status" = 'NEW'
WHERE head."event_id" = ?
ORDER BY
    follower."created_at", follower."event_id" -- ? !sequence
-- ? sequence: follower."sequence"
LIMIT ?;
