-- Purpose: rows whose publish was proved.
-- Locks: rows by primary key ascending, then their `idx_pending` entries.
-- Index: primary key.
-- Guards: `status` and `lease_token`: a row that was swept, claimed again or settled is not touched.
UPDATE `outbox_event`
SET `status` = 'SENT',
    `lease_token` = NULL,
    `locked_until` = NULL
-- ? sent_at: , `sent_at` = NOW(6)
-- ? last_outcome: , `last_outcome` = 'confirmed'
-- ? last_error: , `last_error` = NULL
WHERE `event_id` IN (?)
    AND `status` = 'SENDING'
    AND `lease_token` = ?;
