-- Purpose: swept rows that reached the attempts cap.
-- Locks: rows by primary key ascending; they are locked already.
-- Index: primary key.
-- Guards: `status`, and the caller compares the affected rows with the ids.
UPDATE `outbox_event`
SET `status` = 'DEAD',
    `lease_token` = NULL,
    `locked_until` = NULL
-- ? last_outcome: , `last_outcome` = 'swept'
-- ? last_error: , `last_error` = COALESCE(?, `last_error`)
WHERE `event_id` IN (?)
    AND `status` = 'SENDING';
