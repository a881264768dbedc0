-- Purpose: which of the events named are still where a decision about them found them.
-- Locks: rows by primary key ascending, held until the decision is carried out.
-- Index: primary key.
-- Guards: `status`: what a relay took meanwhile is not decided about.
SELECT `event_id` AS event_id
FROM `outbox_event`
WHERE `event_id` IN (?)
    AND `status` = 'DEAD' -- ? dead
-- ? waiting_or_dead: AND `status` IN ('NEW', 'DEAD')
-- ? sent: AND `status` = 'SENT'
ORDER BY `event_id`
FOR UPDATE;
