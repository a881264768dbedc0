-- Purpose: how often a settlement came too late.
-- Locks: none.
-- Index: `consign_attempt_outcome`.
SELECT COUNT(*)
FROM "consign_attempt"
WHERE "outcome" = 'fenced';
