-- Purpose: further steps of aggregates.
-- Locks: the rows, which progress_select.sql locked.
-- Index: primary key.
-- Why: the rows are there and locked, so ON DUPLICATE KEY hides nothing here; it is an UPDATE of many rows, each with
--   values of its own.
INSERT INTO `consign_progress` (`version`, `state`, `consumer_name`, `aggregate`, `updated_at`)
VALUES
-- @row
(?, ?, ?, ?, NOW(6))
-- @end
ON DUPLICATE KEY UPDATE
    `version` = VALUES(`version`),
    `state` = VALUES(`state`),
    `updated_at` = VALUES(`updated_at`);
