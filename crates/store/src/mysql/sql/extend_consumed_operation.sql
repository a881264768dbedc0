-- Purpose: adds the optional columns a marker table lacks, in one step, all nullable.
-- Locks: the table's metadata; columns are added in place where the server can.
ALTER TABLE `consumed_operation` ALGORITHM = DEFAULT
-- ? !fingerprint: , ADD COLUMN `fingerprint` CHAR(64) NULL
-- ? !applied_at: , ADD COLUMN `applied_at` DATETIME(6) NULL
-- ? !aggregate_version: , ADD COLUMN `aggregate_version` BIGINT NULL
-- ? !comparison_version: , ADD COLUMN `comparison_version` INT NULL
;
