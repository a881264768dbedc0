-- Purpose: notes what somebody decided about a conflict.
-- Locks: the row, which is locked already.
-- Index: `idx_id`.
-- Guards: `resolved_at`: what was decided before stands, until the same content comes again.
UPDATE `consign_conflict`
SET `resolved_at` = NOW(6),
    `resolution` = ?
WHERE `id` = ?
    AND `resolved_at` IS NULL;
