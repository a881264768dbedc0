-- Purpose: adds what an attempt log of an earlier version lacks.
-- Locks: the table's metadata; columns are added in place where the server can.
ALTER TABLE `consign_attempt` ALGORITHM = DEFAULT
-- ? !started_at: , ADD COLUMN `started_at` DATETIME(6) NULL
;
