-- Purpose: how often a settlement came too late.
-- Locks: none.
-- Index: `idx_outcome`.
SELECT COUNT(*)
FROM `consign_attempt`
WHERE `outcome` = 'fenced';
