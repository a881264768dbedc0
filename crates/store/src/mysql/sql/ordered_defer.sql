-- Purpose: moves rows that have to wait for others of their aggregate away from the front of the index.
-- Locks: rows by primary key ascending; they are locked already.
-- Index: primary key.
-- Guards: `status` = 'NEW'; a row is only ever moved later.
UPDATE `outbox_event`
SET `available_at` = GREATEST(`available_at`, NOW(6) + INTERVAL ? MICROSECOND)
WHERE `event_id` IN (?)
    AND `status` = 'NEW';
