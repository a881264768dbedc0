-- Purpose: rows whose publish was proved.
-- Locks: the write lock, held by the settle.
-- Index: the unique index on event_id.
-- Guards: `status` and `lease_token`: a row that was swept, claimed again or settled is not touched.
UPDATE "outbox_event"
SET "status" = 'SENT',
    "lease_token" = NULL,
    "locked_until" = NULL
-- ? sent_at: , "sent_at" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
-- ? last_outcome: , "last_outcome" = 'confirmed'
-- ? last_error: , "last_error" = NULL
WHERE "event_id" IN (?)
    AND "status" = 'SENDING'
    AND "lease_token" = ?;
