-- Purpose: rows to publish again later; the attempt counts.
-- Locks: rows by primary key ascending, then their `idx_pending` entries.
-- Index: primary key.
-- Guards: `status` and `lease_token`: a row that was swept, claimed again or settled is not touched.
UPDATE `outbox_event`
SET `status` = 'NEW',
    `lease_token` = NULL,
    `locked_until` = NULL,
    `available_at` = NOW(6) + INTERVAL ? MICROSECOND
-- ? last_outcome: , `last_outcome` = 'retry'
-- ? last_error: , `last_error` = COALESCE(?, `last_error`)
WHERE `event_id` IN (?)
    AND `status` = 'SENDING'
    AND `lease_token` = ?;
