-- Purpose: the first step of aggregates.
-- Locks: the new rows, in the order given; a taken key waits for its holder to end.
-- Guards: a plain INSERT: a row that is there after all means that somebody else took the first step.
INSERT INTO `consign_progress` (`version`, `state`, `consumer_name`, `aggregate`, `updated_at`)
VALUES
-- @row
(?, ?, ?, ?, NOW(6))
-- @end
;
