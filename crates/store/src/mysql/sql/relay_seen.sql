-- Purpose: says that a relay is there, for one lease.
-- Locks: its row.
-- Index: primary key.
INSERT INTO `consign_relay` (`outbox`, `partition_count`, `relay`, `seen_until`)
VALUES (?, ?, ?, NOW(6) + INTERVAL ? MICROSECOND)
ON DUPLICATE KEY UPDATE `seen_until` = VALUES(`seen_until`);
