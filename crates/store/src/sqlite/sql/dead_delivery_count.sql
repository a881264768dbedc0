-- Purpose: dead deliveries nobody has dealt with.
-- Locks: none.
SELECT COUNT(*)
FROM "consign_dead_delivery"
WHERE "resolved_at" IS NULL;
