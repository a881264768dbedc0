-- Purpose: deliveries that wait for their next attempt, or for the step before them, instead of in front of a queue.
-- Why: messages are kept whole, since the broker no longer has them.
CREATE TABLE IF NOT EXISTS `consign_parked_delivery` (
    `id` BIGINT NOT NULL AUTO_INCREMENT,
    `consumer_name` VARCHAR(128) NOT NULL,
    `content_digest` CHAR(64) NOT NULL,
    `business_key` VARCHAR(512) NULL,
    `message_id` VARCHAR(255) NULL,
    `message_type` VARCHAR(255) NULL,
    `source` VARCHAR(255) NOT NULL,
    `headers` MEDIUMTEXT NULL,
    `payload` LONGBLOB NOT NULL,
    `reason` VARCHAR(16) NOT NULL,
    `detail` VARCHAR(1024) NOT NULL,
    `attempts` INT NOT NULL,
    `aggregate` VARCHAR(255) NULL,
    `version` BIGINT NULL,
    `due_at` DATETIME(6) NOT NULL,
    `lease_token` VARCHAR(64) NULL,
    `locked_until` DATETIME(6) NULL,
    `parked_at` DATETIME(6) NOT NULL,
    PRIMARY KEY (`id`),
    UNIQUE KEY `idx_content` (`consumer_name`, `content_digest`),
    KEY `idx_due` (`consumer_name`, `due_at`),
    KEY `idx_gap` (`consumer_name`, `aggregate`, `version`)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80000 utf8mb4_0900_bin */;
