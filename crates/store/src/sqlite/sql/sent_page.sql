-- Purpose: the next sent rows in the order in which they were due, and whether each is old enough to go.
-- Locks: none.
-- Index: `idx_pending`, its SENT part, in order.
-- Guards: a row is due before it is sent, so rows that became due after the date are not looked at. Without `sent_at`
--   nothing tells better when a row was sent than when it was due. SQLite keeps whatever is written, and any number is
--   smaller than any text: only text can be old.
SELECT "event_id" AS event_id,
    CAST("available_at" AS TEXT) AS due_at,
    CAST("available_at" AS TEXT) AS dated, -- ? !sent_at
-- ? sent_at: CAST(COALESCE("sent_at", "available_at") AS TEXT) AS dated,
    "available_at" < ? AS old -- ? !sent_at
-- ? sent_at: (typeof(COALESCE("sent_at", "available_at")) = 'text' AND COALESCE("sent_at", "available_at") < ?) AS old
FROM "outbox_event"
WHERE "status" = 'SENT'
    AND typeof("available_at") = 'text'
    AND typeof("event_id") = 'text'
    AND "available_at" < ?
-- ? after: AND "available_at" >= ? AND ("available_at" > ? OR "event_id" > ?)
ORDER BY "available_at", "event_id"
LIMIT ?;
