-- Purpose: notes what somebody did about a dead delivery.
-- Locks: the row, which is locked already.
-- Index: `idx_id`.
-- Guards: `resolved_at`: what was done before stands, until the same delivery dies again.
UPDATE `consign_dead_delivery`
SET `resolved_at` = NOW(6),
    `resolution` = ?
WHERE `id` = ?
    AND `resolved_at` IS NULL;
