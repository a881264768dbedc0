-- Purpose: the relays that share an outbox in ordered mode, so that each can tell its share.
CREATE TABLE IF NOT EXISTS `consign_relay` (
    `outbox` VARCHAR(160) NOT NULL,
    `partition_count` INT NOT NULL,
    `relay` VARCHAR(160) NOT NULL,
    `seen_until` DATETIME(6) NOT NULL,
    PRIMARY KEY (`outbox`, `partition_count`, `relay`)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80000 utf8mb4_0900_bin */;
