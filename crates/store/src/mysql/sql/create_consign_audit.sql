-- Purpose: what people did about events and deliveries, and who; written in the transaction that did it.
CREATE TABLE IF NOT EXISTS `consign_audit` (
    `id` BIGINT NOT NULL AUTO_INCREMENT,
    `at` DATETIME(6) NOT NULL,
    `actor` VARCHAR(128) NOT NULL,
    `action` VARCHAR(64) NOT NULL,
    `subject` VARCHAR(255) NOT NULL,
    `detail` VARCHAR(1024) NULL,
    PRIMARY KEY (`id`)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80000 utf8mb4_0900_bin */;
