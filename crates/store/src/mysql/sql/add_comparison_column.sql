-- Purpose: adds one column that a consumer compares by, nullable, with the type its binding has.
-- Locks: the table's metadata; the column is added in place where the server can.
-- Why: text compares byte by byte and without padding, so that `a` and `A` are different content.
ALTER TABLE `consumed_operation` ADD COLUMN `comparison_column`
    BIGINT NULL -- ? integer
-- ? decimal: DECIMAL(65, 18) NULL
-- ? string: VARCHAR(255) CHARACTER SET utf8mb4 COLLATE /*M! utf8mb4_nopad_bin */ /*!80000 utf8mb4_0900_bin */ NULL
-- ? boolean: TINYINT NULL
-- ? json: LONGTEXT NULL
-- ? timestamp: DATETIME(6) NULL
;
