-- Purpose: adds what an earlier version's conflicts lack, in one step.
-- Locks: the table's metadata, and its writers while the rows are numbered.
ALTER TABLE `consign_conflict` ALGORITHM = DEFAULT
-- ? !id: , ADD COLUMN `id` BIGINT NOT NULL AUTO_INCREMENT FIRST, ADD UNIQUE KEY `idx_id` (`id`)
-- ? !message_id: , ADD COLUMN `message_id` VARCHAR(255) NULL
-- ? !message_type: , ADD COLUMN `message_type` VARCHAR(255) NULL
-- ? !headers: , ADD COLUMN `headers` MEDIUMTEXT NULL
-- ? !existing_payload: , ADD COLUMN `existing_payload` MEDIUMBLOB NULL
-- ? !existing_payload_bytes: , ADD COLUMN `existing_payload_bytes` BIGINT NULL
;
