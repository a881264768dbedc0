-- Purpose: which relay claims which aggregates, in ordered mode. A row for each partition of each outbox.
-- Why: relays that count partitions differently, as while a config is rolled out, keep different rows: which relay
--   claims an aggregate spreads the work and decides no order.
CREATE TABLE IF NOT EXISTS `consign_partition` (
    `outbox` VARCHAR(160) NOT NULL,
    `partition_count` INT NOT NULL,
    `partition_number` INT NOT NULL,
    `relay` VARCHAR(160) NULL,
    `token` CHAR(32) NULL,
    `lease_until` DATETIME(6) NULL,
    PRIMARY KEY (`outbox`, `partition_count`, `partition_number`)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80000 utf8mb4_0900_bin */;
