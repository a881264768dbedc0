-- Purpose: puts an event aside for good.
-- Locks: the row by primary key, then its `idx_pending` entries.
-- Index: primary key.
-- Guards: `status`: an event on its way or sent is not touched.
UPDATE `outbox_event`
SET `status` = 'DISCARDED',
    `lease_token` = NULL,
    `locked_until` = NULL
-- ? last_outcome: , `last_outcome` = 'discarded'
WHERE `event_id` = ?
    AND `status` IN ('NEW', 'DEAD');
