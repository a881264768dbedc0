-- Purpose: the markers of applied operations, compared by fingerprint. Comparison columns are the user's own: add
--   them before the first consumer runs, for instance `user_id` BIGINT and `amount` INT.
-- Why: keys compare byte by byte and without padding, see create_outbox_event.sql.
CREATE TABLE `consumed_operation` (
    `consumer_name` VARCHAR(64) NOT NULL,
    `business_key` VARCHAR(128) NOT NULL,
    `event_id` VARCHAR(255) NULL,
    `fingerprint` CHAR(64) NULL,
    `aggregate_version` BIGINT NULL,
    `comparison_version` INT NULL,
    `applied_at` DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    PRIMARY KEY (`consumer_name`, `business_key`)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80000 utf8mb4_0900_bin */;
