-- Purpose: deletes the old markers of one page.
-- Locks: the rows named, by primary key ascending. Markers of operations under way are not among them, so nobody waits.
-- Index: primary key.
-- Guards: the same as marker_page.sql: a marker that was written again meanwhile is not old any more.
DELETE FROM `consumed_operation`
WHERE `consumer_name` = ?
    AND `business_key` IN (?)
    AND YEAR(`applied_at`) > 0
    AND `applied_at` < CAST(? AS DATETIME(6));
