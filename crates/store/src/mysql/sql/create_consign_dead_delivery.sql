-- Purpose: deliveries no consumer could process, for people to look at, and whole, so that they can be sent back.
-- Why: people name a dead delivery by its `id`; consign finds it by its content.
CREATE TABLE IF NOT EXISTS `consign_dead_delivery` (
    `id` BIGINT NOT NULL AUTO_INCREMENT,
    `consumer_name` VARCHAR(128) NOT NULL,
    `content_digest` CHAR(64) NOT NULL,
    `business_key` VARCHAR(255) NULL,
    `message_id` VARCHAR(255) NULL,
    `message_type` VARCHAR(255) NULL,
    `source` VARCHAR(255) NOT NULL,
    `reason` VARCHAR(1024) NOT NULL,
    `attempts` INT NULL,
    `headers` MEDIUMTEXT NULL,
    `payload` LONGBLOB NOT NULL,
    `payload_bytes` BIGINT NOT NULL,
    `count` BIGINT NOT NULL,
    `first_seen_at` DATETIME(6) NOT NULL,
    `last_seen_at` DATETIME(6) NOT NULL,
    `resolved_at` DATETIME(6) NULL,
    `resolution` VARCHAR(255) NULL,
    PRIMARY KEY (`consumer_name`, `content_digest`),
    UNIQUE KEY `idx_id` (`id`)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80000 utf8mb4_0900_bin */;
