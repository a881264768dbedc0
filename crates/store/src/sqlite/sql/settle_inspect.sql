-- Purpose: where rows stand, when a settle changed fewer of them than it must: which are owned, which are fenced.
-- Locks: the write lock, held until the settle's end, so that the answer stays true.
-- Index: the unique index on event_id.
SELECT "event_id" AS event_id,
    "status" AS status,
    "lease_token" AS lease_token
-- ? last_outcome: , "last_outcome" AS last_outcome
FROM "outbox_event"
WHERE "event_id" IN (?)
ORDER BY "event_id";
