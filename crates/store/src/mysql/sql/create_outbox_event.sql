-- Purpose: the outbox with every optional column.
-- Why: keys compare byte by byte and without padding, so that Order:42, order:42 and 'order:42 ' stay three keys;
--   the collation of that kind is called differently by MySQL and MariaDB. Microseconds in every date: without them
--   a short delay would be rounded to now or to the next second.
--   `sequence` is the order within an aggregate; it is assigned at INSERT, not at COMMIT. `idx_aggregate` is for ordered
--   claims alone: every change of status moves a row in it, at a place of its own, which more than doubles what a claim of any
--   kind costs (docs/operations/scale.md). It has the type last: the servers read an index in order only when what comes before is compared by a plain equality, and the type may be NULL.
CREATE TABLE `outbox_event` (
    `event_id` VARCHAR(64) NOT NULL,
    `sequence` BIGINT NOT NULL AUTO_INCREMENT,
    `aggregate_type` VARCHAR(64) NULL,
    `aggregate_id` VARCHAR(128) NULL,
    `aggregate_version` BIGINT NULL,
    `event_type` VARCHAR(64) NOT NULL,
    `business_key` VARCHAR(128) NULL,
    `payload` JSON NULL, -- ? !longblob
-- ? longblob: `payload` LONGBLOB NULL,
    `headers` JSON NULL,
    `destination` VARCHAR(64) NULL,
    `route_key` VARCHAR(255) NULL,
    `status` VARCHAR(16) NOT NULL DEFAULT 'NEW',
    `attempts` INT NOT NULL DEFAULT 0,
    `available_at` DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    `lease_token` VARCHAR(64) NULL,
    `locked_until` DATETIME(6) NULL,
    `last_outcome` VARCHAR(16) NULL,
    `last_error` VARCHAR(1024) NULL,
    `created_at` DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    `sent_at` DATETIME(6) NULL,
    PRIMARY KEY (`event_id`),
    UNIQUE KEY `idx_sequence` (`sequence`),
    KEY `idx_pending` (`status`, `available_at`, `event_id`)
-- ? ordered: , KEY `idx_aggregate` (`aggregate_id`, `status`, `sequence`, `aggregate_type`)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = /*M! utf8mb4_nopad_bin */ /*!80000 utf8mb4_0900_bin */;
