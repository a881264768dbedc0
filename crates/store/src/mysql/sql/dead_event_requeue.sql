-- Purpose: gives dead events another life: due now, with all their attempts.
-- Locks: rows by primary key ascending, then their `idx_pending` entries.
-- Index: primary key.
-- Guards: `status`: only a dead event comes back; the caller compares the affected rows with the ids.
UPDATE `outbox_event`
SET `status` = 'NEW',
    `attempts` = 0,
    `available_at` = NOW(6),
    `lease_token` = NULL,
    `locked_until` = NULL
-- ? last_outcome: , `last_outcome` = 'requeued'
WHERE `event_id` IN (?)
    AND `status` = 'DEAD';
