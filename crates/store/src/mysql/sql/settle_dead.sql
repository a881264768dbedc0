-- Purpose: rows given up.
-- Locks: rows by primary key ascending, then their `idx_pending` entries.
-- Index: primary key.
-- Guards: `status` and `lease_token`: a row that was swept, claimed again or settled is not touched.
UPDATE `outbox_event`
SET `status` = 'DEAD',
    `lease_token` = NULL,
    `locked_until` = NULL
-- ? last_outcome: , `last_outcome` = 'dead'
-- ? last_error: , `last_error` = COALESCE(?, `last_error`)
WHERE `event_id` IN (?)
    AND `status` = 'SENDING'
    AND `lease_token` = ?;
