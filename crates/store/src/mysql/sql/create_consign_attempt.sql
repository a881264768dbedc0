-- Purpose: publish attempts that came to an end, and settlements that came too late.
CREATE TABLE IF NOT EXISTS `consign_attempt` (
    `attempt_id` BIGINT NOT NULL AUTO_INCREMENT,
    `event_id` VARCHAR(255) NOT NULL,
    `lease_token` VARCHAR(64) NOT NULL,
    `relay` VARCHAR(128) NOT NULL,
    `started_at` DATETIME(6) NULL,
    `recorded_at` DATETIME(6) NOT NULL,
    `outcome` VARCHAR(16) NOT NULL,
    `detail` VARCHAR(1024) NULL,
    PRIMARY KEY (`attempt_id`),
    KEY `idx_event` (`event_id`),
    KEY `idx_outcome` (`outcome`, `recorded_at`)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80000 utf8mb4_0900_bin */;
