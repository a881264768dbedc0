-- Purpose: conflicts nobody has resolved.
-- Locks: none.
SELECT COUNT(*)
FROM "consign_conflict"
WHERE "resolved_at" IS NULL;
