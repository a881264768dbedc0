-- Purpose: takes the keys of operations, before any business write. The unique key decides who applies each.
-- Locks: the write lock, held since BEGIN IMMEDIATE.
-- Guards: a plain INSERT: OR IGNORE or ON CONFLICT would hide which it was.
INSERT INTO "consumed_operation" (
    "consumer_name",
    "business_key"
-- ? event_id: , "event_id"
-- ? applied_at: , "applied_at"
-- ? aggregate_version: , "aggregate_version"
-- ? comparison_version: , "comparison_version"
-- * comparison: , "comparison"
)
VALUES
-- @row
(
    ?,
    ?
-- ? event_id: , ?
-- ? applied_at: , strftime('%Y-%m-%d %H:%M:%f000', 'now')
-- ? aggregate_version: , ?
-- ? comparison_version: , ?
-- * comparison: , ?
)
-- @end
;
