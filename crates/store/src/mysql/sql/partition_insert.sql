-- Purpose: the rows of partitions that do not exist yet.
-- Locks: the new rows. Two relays that start together wait for each other here, in one order.
-- Index: primary key.
-- Why: whether this relay or another one made a row is the same to both, so a duplicate is no error.
INSERT INTO `consign_partition` (`outbox`, `partition_count`, `partition_number`) VALUES
-- @row
(?, ?, ?)
-- @end
ON DUPLICATE KEY UPDATE `partition_number` = VALUES(`partition_number`);
