-- Purpose: what ordered_page.sql and, with the word chain, ordered_chain.sql tell, for a table without their index.
-- Locks: the write lock, held since BEGIN IMMEDIATE; a look before that takes none.
-- Index: `idx_pending`, all its unfinished rows at each claim. `doctor` says so.
-- Guards: only ids that are text can be settled by text. Rows without an aggregate are their own heads.
SELECT waiting."event_id" AS event_id,
    waiting.head AS head,
    waiting.held AS held,
    waiting.dead AS dead,
    CAST(ROUND((julianday(waiting."available_at") - julianday('now')) * 86400000.0) AS INTEGER) * 1000 AS wait_micros,
    (SELECT MAX(octet_length(measured."payload")) FROM "outbox_event" AS measured
        WHERE measured."event_id" = waiting."event_id") AS payload_bytes,
    CAST(COALESCE(waiting."attempts", 0) AS INTEGER) AS attempts
-- ? last_outcome: , waiting."last_outcome" AS last_outcome
FROM (
    SELECT "event_id", "status", "attempts", "available_at", "aggregate_id"
-- ? aggregate_type: , "aggregate_type"
-- ? last_outcome: , "last_outcome"
        , CASE WHEN "aggregate_id" IS NULL THEN "event_id"
            ELSE FIRST_VALUE("event_id") OVER (PARTITION BY "aggregate_id"
-- ? aggregate_type: , "aggregate_type"
                ORDER BY "status" <> 'NEW'
                    , "created_at", "event_id" -- ? !sequence
-- ? sequence: , "sequence"
            ) END AS head
        , ROW_NUMBER() OVER (PARTITION BY "aggregate_id"
-- ? aggregate_type: , "aggregate_type"
            ORDER BY "status" <> 'NEW'
                , "created_at", "event_id" -- ? !sequence
-- ? sequence: , "sequence"
        ) AS place
        , CASE WHEN "aggregate_id" IS NULL THEN 0
            ELSE MAX("status" = 'SENDING') OVER (PARTITION BY "aggregate_id"
-- ? aggregate_type: , "aggregate_type"
            ) END AS held
        , CASE WHEN "aggregate_id" IS NULL THEN 0
            ELSE MAX("status" = 'DEAD') OVER (PARTITION BY "aggregate_id"
-- ? aggregate_type: , "aggregate_type"
            ORDER BY
                "created_at", "event_id" -- ? !sequence
-- ? sequence: "sequence"
            ROWS UNBOUNDED PRECEDING) END AS dead
    FROM "outbox_event"
    WHERE "status" IN ('NEW', 'SENDING') -- ? !block
-- ? block: WHERE "status" IN ('NEW', 'SENDING', 'DEAD')
) AS waiting
WHERE waiting."status" = 'NEW'
    AND typeof(waiting."event_id") = 'text'
    AND waiting."available_at" <= strftime('%Y-%m-%d %H:%M:%f000', 'now') -- ? !chain
-- ? chain: AND waiting.head IN (?) AND waiting.place <= ?
-- ? chain: ORDER BY waiting.head, waiting.place
ORDER BY waiting."available_at", waiting."event_id" -- ? !chain
LIMIT ? -- ? !chain
;
