-- Purpose: keys that came again with other content, one row for each content, with what it takes to process the
--   refused message after all.
-- Why: people name a conflict by its `id`; consign finds it by its key, compared byte by byte.
CREATE TABLE IF NOT EXISTS `consign_conflict` (
    `id` BIGINT NOT NULL AUTO_INCREMENT,
    `consumer_name` VARCHAR(128) NOT NULL,
    `business_key` VARCHAR(512) NOT NULL,
    `content_digest` CHAR(64) NOT NULL,
    `event_id` VARCHAR(255) NULL,
    `existing_event_id` VARCHAR(255) NULL,
    `comparison` TEXT NOT NULL,
    `existing` TEXT NOT NULL,
    `message_id` VARCHAR(255) NULL,
    `message_type` VARCHAR(255) NULL,
    `source` VARCHAR(255) NOT NULL,
    `headers` MEDIUMTEXT NULL,
    `payload` MEDIUMBLOB NOT NULL,
    `payload_bytes` BIGINT NOT NULL,
    `existing_payload` MEDIUMBLOB NULL,
    `existing_payload_bytes` BIGINT NULL,
    `count` BIGINT NOT NULL,
    `first_seen_at` DATETIME(6) NOT NULL,
    `last_seen_at` DATETIME(6) NOT NULL,
    `resolved_at` DATETIME(6) NULL,
    `resolution` VARCHAR(255) NULL,
    PRIMARY KEY (`consumer_name`, `business_key`, `content_digest`),
    UNIQUE KEY `idx_id` (`id`)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80000 utf8mb4_0900_bin */;
