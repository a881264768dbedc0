-- Purpose: the markers of transaction messages: the truth about each local transaction, and its fence.
-- Why: the key tells every two keys apart, so that exactly one of COMMITTED and ROLLED_BACK can be there. Dates are UTC,
--   since markers are written in the sessions of producers. The message is kept until it was found in its topic.
CREATE TABLE IF NOT EXISTS `consign_transaction` (
    `transaction_key` VARCHAR(255) NOT NULL,
    `state` VARCHAR(16) NOT NULL,
    `topic` VARCHAR(255) NOT NULL,
    `event_id` VARCHAR(255) NULL,
    `event_type` VARCHAR(255) NULL,
    `business_key` VARCHAR(255) NULL,
    `headers` MEDIUMTEXT NULL,
    `payload` LONGBLOB NULL,
    `payload_digest` CHAR(64) NULL,
    `attempts` INT NOT NULL,
    `created_at` DATETIME(6) NOT NULL,
    `due_at` DATETIME(6) NOT NULL,
    `evidence` VARCHAR(16) NULL,
    `confirmed_at` DATETIME(6) NULL,
    PRIMARY KEY (`transaction_key`),
    KEY `idx_open` (`confirmed_at`, `state`, `due_at`, `created_at`)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80000 utf8mb4_0900_bin */;
