-- Purpose: deletes the old markers of one page.
-- Locks: the write lock, for one page.
-- Index: primary key.
-- Guards: the same as marker_page.sql: a marker that was written again meanwhile is not old any more.
DELETE FROM "consumed_operation"
WHERE ("consumer_name", "business_key") <= (?, ?)
-- ? after:     AND ("consumer_name", "business_key") > (?, ?)
    AND typeof("applied_at") = 'text'
    AND "applied_at" GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9] [0-9][0-9]:[0-9][0-9]*'
    AND "applied_at" < ?;
