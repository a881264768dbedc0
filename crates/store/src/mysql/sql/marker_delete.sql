-- Purpose: takes a marker away, so that the operation which conflicted with it can be applied instead.
-- Locks: the row.
-- Index: primary key.
DELETE FROM `consumed_operation`
WHERE `consumer_name` = ?
    AND `business_key` = ?;
