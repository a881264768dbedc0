-- Purpose: deletes old sent rows that a page named.
-- Locks: the write lock, for one batch.
-- Index: the unique index on event_id.
-- Guards: `status` and the date, as in sent_page.sql: a row that was replayed meanwhile stays.
DELETE FROM "outbox_event"
WHERE "event_id" IN (?)
    AND "status" = 'SENT'
    AND "available_at" < ? -- ? !sent_at
-- ? sent_at: AND COALESCE("sent_at", "available_at") < ?
;
