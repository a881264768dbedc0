-- Purpose: the payload of the event that was applied, for the record of a conflict with it.
-- Locks: none.
-- Index: the unique index on event_id.
SELECT CAST("payload" AS BLOB) AS payload
FROM "outbox_event"
WHERE "event_id" = ?;
