-- Purpose: takes an operation's key, before any business write. The unique key decides who applies it.
-- Locks: the new row; a taken key waits for its holder to end.
-- Guards: a plain INSERT: IGNORE or ON DUPLICATE KEY would hide which it was.
INSERT INTO `consumed_operation` (
    `consumer_name`,
    `business_key`
-- ? event_id: , `event_id`
-- ? applied_at: , `applied_at`
-- ? aggregate_version: , `aggregate_version`
-- * comparison: , `comparison`
)
VALUES (
    ?,
    ?
-- ? event_id: , ?
-- ? applied_at: , NOW(6)
-- ? aggregate_version: , ?
-- * comparison: , ?
);
