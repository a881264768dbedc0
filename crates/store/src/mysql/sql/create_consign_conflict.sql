-- Purpose: keys that came again with other content, one row for each content.
CREATE TABLE IF NOT EXISTS `consign_conflict` (
    `consumer_name` VARCHAR(128) NOT NULL,
    `business_key` VARCHAR(512) NOT NULL,
    `content_digest` CHAR(64) NOT NULL,
    `event_id` VARCHAR(255) NULL,
    `existing_event_id` VARCHAR(255) NULL,
    `comparison` TEXT NOT NULL,
    `existing` TEXT NOT NULL,
    `source` VARCHAR(255) NOT NULL,
    `payload` MEDIUMBLOB NOT NULL,
    `payload_bytes` BIGINT NOT NULL,
    `count` BIGINT NOT NULL,
    `first_seen_at` DATETIME(6) NOT NULL,
    `last_seen_at` DATETIME(6) NOT NULL,
    `resolved_at` DATETIME(6) NULL,
    `resolution` VARCHAR(255) NULL,
    PRIMARY KEY (`consumer_name`, `business_key`, `content_digest`)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80000 utf8mb4_0900_bin */;
