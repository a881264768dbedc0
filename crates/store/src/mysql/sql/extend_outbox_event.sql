-- Purpose: adds the optional columns an outbox lacks, in one step, all nullable: producers that exist keep working.
-- Locks: the table's metadata; columns are added in place where the server can.
-- Why: `sequence` is not among them: rows that exist would be numbered by primary key, which is no order.
ALTER TABLE `outbox_event` ALGORITHM = DEFAULT
-- ? !aggregate_type: , ADD COLUMN `aggregate_type` VARCHAR(64) NULL
-- ? !aggregate_version: , ADD COLUMN `aggregate_version` BIGINT NULL
-- ? !business_key: , ADD COLUMN `business_key` VARCHAR(128) COLLATE /*M! utf8mb4_nopad_bin */ /*!80000 utf8mb4_0900_bin */ NULL
-- ? !headers: , ADD COLUMN `headers` JSON NULL
-- ? !destination: , ADD COLUMN `destination` VARCHAR(64) NULL
-- ? !route_key: , ADD COLUMN `route_key` VARCHAR(255) NULL
-- ? !last_outcome: , ADD COLUMN `last_outcome` VARCHAR(16) NULL
-- ? !last_error: , ADD COLUMN `last_error` VARCHAR(1024) CHARACTER SET utf8mb4 NULL
-- ? !sent_at: , ADD COLUMN `sent_at` DATETIME(6) NULL
-- ? !idx_pending: , ADD KEY `idx_pending` (`status`, `available_at`, `event_id`)
-- ? order_by_sequence: , ADD KEY `idx_aggregate` (`aggregate_id`, `status`, `sequence`, `aggregate_type`)
-- ? order_by_date: , ADD KEY `idx_aggregate` (`aggregate_id`, `status`, `created_at`, `event_id`, `aggregate_type`)
;
