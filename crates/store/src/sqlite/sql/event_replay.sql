-- Purpose: sent events back to NEW, due now, with all their attempts: a relay publishes them again under the same ids.
-- Locks: the write lock, held by the action.
-- Index: the unique index on event_id.
-- Guards: `status`: only a sent event is published again; the caller compares the affected rows with the ids.
-- Why: `sent_at` stays: it tells when the event was sent first until the repeat is sent.
UPDATE "outbox_event"
SET "status" = 'NEW',
    "attempts" = 0,
    "available_at" = strftime('%Y-%m-%d %H:%M:%f000', 'now'),
    "lease_token" = NULL,
    "locked_until" = NULL
-- ? last_outcome: , "last_outcome" = 'replayed'
-- ? last_error: , "last_error" = NULL
WHERE "event_id" IN (?)
    AND "status" = 'SENT';
