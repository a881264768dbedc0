-- Purpose: which of the events named are still where a decision about them found them.
-- Locks: the write lock, held until the decision is carried out.
-- Index: the unique index on event_id.
-- Guards: `status`: what a relay took meanwhile is not decided about.
SELECT "event_id" AS event_id
FROM "outbox_event"
WHERE "event_id" IN (?)
    AND "status" = 'DEAD' -- ? dead
-- ? waiting_or_dead: AND "status" IN ('NEW', 'DEAD')
-- ? sent: AND "status" = 'SENT'
ORDER BY "event_id";
