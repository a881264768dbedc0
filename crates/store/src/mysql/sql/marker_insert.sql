-- Purpose: takes the keys of operations, before any business write. The unique key decides who applies each.
-- Locks: the new rows, in the order given; a taken key waits for its holder to end.
-- Guards: a plain INSERT: IGNORE or ON DUPLICATE KEY would hide which it was.
INSERT INTO `consumed_operation` (
    `consumer_name`,
    `business_key`
-- ? event_id: , `event_id`
-- ? applied_at: , `applied_at`
-- ? aggregate_version: , `aggregate_version`
-- ? comparison_version: , `comparison_version`
-- * comparison: , `comparison`
)
VALUES
-- @row
(
    ?,
    ?
-- ? event_id: , ?
-- ? applied_at: , NOW(6)
-- ? aggregate_version: , ?
-- ? comparison_version: , ?
-- * comparison: , ?
)
-- @end
;
