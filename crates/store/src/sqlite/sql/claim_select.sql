-- Purpose: the due rows, oldest first, with what decides how many of them one claim takes.
-- Locks: the write lock, held since BEGIN IMMEDIATE: nobody else claims, settles or appends meanwhile.
-- Index: `idx_pending` (status, available_at, event_id), without a sort.
-- Guards: only ids that are text can be settled by text; `doctor` reports the others. The length is read without
--   reading the payload. Dates compare as text, all in UTC and in one form.
SELECT "event_id" AS event_id,
    octet_length("payload") AS payload_bytes,
    CAST(COALESCE("attempts", 0) AS INTEGER) AS attempts
-- ? last_outcome: , "last_outcome" AS last_outcome
FROM "outbox_event"
WHERE "status" = 'NEW'
    AND "available_at" <= strftime('%Y-%m-%d %H:%M:%f000', 'now')
    AND typeof("event_id") = 'text'
ORDER BY "available_at", "event_id"
LIMIT ?;
