-- Purpose: notes what somebody decided about a conflict.
-- Locks: the write lock, held by the action.
-- Index: primary key.
-- Guards: `resolved_at`: what was decided before stands, until the same content comes again.
UPDATE "consign_conflict"
SET "resolved_at" = strftime('%Y-%m-%d %H:%M:%f000', 'now'),
    "resolution" = ?
WHERE "id" = ?
    AND "resolved_at" IS NULL;
