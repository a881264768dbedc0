-- Purpose: rows given back untried, or tried at a destination that was at fault; the claim's attempt is returned.
-- Locks: rows by primary key ascending, then their `idx_pending` entries.
-- Index: primary key.
-- Guards: `status` and `lease_token`: a row that was swept, claimed again or settled is not touched. The attempts
--   are computed from the row, never from a number read earlier.
UPDATE `outbox_event`
SET `status` = 'NEW',
    `lease_token` = NULL,
    `locked_until` = NULL,
    `attempts` = GREATEST(`attempts`, 1) - 1,
    `available_at` = NOW(6) + INTERVAL ? MICROSECOND
-- ? last_outcome: , `last_outcome` = 'released'
-- ? last_error: , `last_error` = COALESCE(?, `last_error`)
WHERE `event_id` IN (?)
    AND `status` = 'SENDING'
    AND `lease_token` = ?;
