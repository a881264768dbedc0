-- Purpose: takes the gaps that were found to be next, before they are leased.
-- Locks: rows by primary key.
-- Index: primary key.
-- Guards: SKIP LOCKED, and the conditions of the look once more: somebody may have leased or parked a row since.
SELECT `id` AS id
FROM `consign_parked_delivery`
WHERE `id` IN (?)
    AND `reason` = 'GAP'
    AND (`locked_until` IS NULL OR `locked_until` <= NOW(6))
FOR UPDATE SKIP LOCKED;
