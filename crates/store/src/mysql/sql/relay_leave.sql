-- Purpose: forgets a relay that ends, and those not heard of for a day.
-- Locks: their rows, by primary key.
-- Index: primary key.
DELETE FROM `consign_relay`
WHERE `outbox` = ?
    AND `partition_count` = ?
    AND (`relay` = ? OR `seen_until` < NOW(6) - INTERVAL 1 DAY);
