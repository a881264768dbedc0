-- Purpose: adds what an earlier version's dead deliveries lack, in one step, and makes room for whole messages.
-- Locks: the table's metadata, and its writers while the rows are copied.
ALTER TABLE `consign_dead_delivery` ALGORITHM = DEFAULT
-- ? !id: , ADD COLUMN `id` BIGINT NOT NULL AUTO_INCREMENT FIRST, ADD UNIQUE KEY `idx_id` (`id`)
-- ? !attempts: , ADD COLUMN `attempts` INT NULL
-- ? !longblob: , MODIFY COLUMN `payload` LONGBLOB NOT NULL, MODIFY COLUMN `headers` MEDIUMTEXT NULL
;
