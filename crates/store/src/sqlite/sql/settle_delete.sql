-- Purpose: rows whose publish was proved, in an outbox that keeps no sent rows.
-- Locks: the write lock, held by the settle.
-- Index: the unique index on event_id.
-- Guards: `status` and `lease_token`, as in settle_sent.sql: a row that was swept, claimed again or settled stays.
DELETE FROM "outbox_event"
WHERE "event_id" IN (?)
    AND "status" = 'SENDING'
    AND "lease_token" = ?;
