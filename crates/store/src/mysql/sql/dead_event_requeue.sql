-- Purpose: gives a dead event another life: due now, with all its attempts.
-- Locks: the row by primary key, then its `idx_pending` entries.
-- Index: primary key.
-- Guards: `status`: only a dead event comes back.
UPDATE `outbox_event`
SET `status` = 'NEW',
    `attempts` = 0,
    `available_at` = NOW(6),
    `lease_token` = NULL,
    `locked_until` = NULL
-- ? last_outcome: , `last_outcome` = 'requeued'
WHERE `event_id` = ?
    AND `status` = 'DEAD';
