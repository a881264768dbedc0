-- Purpose: how far each consumer came with each aggregate, for guards.
CREATE TABLE IF NOT EXISTS `consign_progress` (
    `consumer_name` VARCHAR(128) NOT NULL,
    `aggregate` VARCHAR(255) NOT NULL,
    `version` BIGINT NULL,
    `state` VARCHAR(64) NULL,
    `updated_at` DATETIME(6) NOT NULL,
    PRIMARY KEY (`consumer_name`, `aggregate`)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80000 utf8mb4_0900_bin */;
