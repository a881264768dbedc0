-- Purpose: the age of the oldest row that should be on its way, and how many leases have ended unswept.
-- Locks: none.
-- Index: `idx_pending`, its NEW and SENDING parts.
-- Why: a row nobody tried yet and that is not due is waiting as its producer wished, so it is not pending.
SELECT MAX(TIMESTAMPDIFF(MICROSECOND, `created_at`, NOW(6))) AS oldest_micros,
    COUNT(CASE WHEN `status` = 'SENDING' AND (`locked_until` <= NOW(6) OR `locked_until` IS NULL) THEN 1 END) AS expired
FROM `outbox_event`
WHERE `status` IN ('NEW', 'SENDING')
    AND (`status` = 'SENDING' OR `available_at` <= NOW(6) OR `attempts` > 0);
