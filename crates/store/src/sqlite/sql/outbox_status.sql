-- Purpose: rows per status.
-- Locks: none.
-- Index: `idx_pending`, all of it, without touching the rows.
SELECT "status" AS status,
    COUNT(*) AS events
FROM "outbox_event"
GROUP BY "status";
