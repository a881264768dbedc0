-- Purpose: moves rows that have to wait for others of their aggregate away from the front of the index.
-- Locks: the write lock, held by the claim.
-- Index: the unique index on event_id.
-- Guards: `status` = 'NEW'; a row is only ever moved later.
UPDATE "outbox_event"
SET "available_at" = MAX("available_at", strftime('%Y-%m-%d %H:%M:%f000', 'now', ?))
WHERE "event_id" IN (?)
    AND "status" = 'NEW';
