-- Purpose: notes what somebody did about a dead delivery.
-- Locks: the write lock, held by the action.
-- Index: primary key.
-- Guards: `resolved_at`: what was done before stands, until the same delivery dies again.
UPDATE "consign_dead_delivery"
SET "resolved_at" = strftime('%Y-%m-%d %H:%M:%f000', 'now'),
    "resolution" = ?
WHERE "id" = ?
    AND "resolved_at" IS NULL;
