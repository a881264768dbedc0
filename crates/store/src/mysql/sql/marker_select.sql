-- Purpose: the committed markers of a consumer's keys, their comparison columns as exact text.
-- Locks: none, or the rows shared: then the newest are read, whatever the isolation level.
-- Index: primary key.
-- Guards: the stored names come back too, so that a collation which takes two keys for one is noticed.
SELECT CAST(`consumer_name` AS CHAR) AS consumer_name,
    CAST(`business_key` AS CHAR) AS business_key
-- ? event_id: , CAST(`event_id` AS CHAR) AS event_id
-- ? comparison_version: , CAST(`comparison_version` AS SIGNED) AS comparison_version
-- ? fingerprint: , CAST(`fingerprint` AS CHAR) AS fingerprint
-- * comparison: , CAST(`comparison` AS CHAR)
FROM `consumed_operation`
WHERE `consumer_name` = ?
    AND `business_key` IN (?)
-- ? locked: LOCK IN SHARE MODE
;
