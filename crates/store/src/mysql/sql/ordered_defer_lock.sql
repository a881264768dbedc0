-- Purpose: locks those rows that an ordered claim moves out of the way and that nobody else has.
-- Locks: rows by primary key ascending; none is waited for, so two claims never wait for each other in a circle.
-- Index: primary key.
-- Guards: `status` = 'NEW'.
SELECT `event_id` AS event_id
FROM `outbox_event`
WHERE `event_id` IN (?)
    AND `status` = 'NEW'
FOR UPDATE SKIP LOCKED;
