-- Purpose: the committed marker of a key, its comparison columns as exact text.
-- Locks: none.
-- Index: primary key.
-- Guards: the stored names come back too, so that a collation which takes two keys for one is noticed.
SELECT CAST(`consumer_name` AS CHAR) AS consumer_name,
    CAST(`business_key` AS CHAR) AS business_key
-- ? event_id: , CAST(`event_id` AS CHAR) AS event_id
-- * comparison: , CAST(`comparison` AS CHAR)
FROM `consumed_operation`
WHERE `consumer_name` = ?
    AND `business_key` = ?;
