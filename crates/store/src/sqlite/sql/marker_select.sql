-- Purpose: the committed markers of a consumer's keys, their comparison columns as exact text.
-- Locks: none.
-- Index: primary key.
-- Guards: the stored names come back too, so that a collation which takes two keys for one is noticed.
SELECT "consumer_name" AS consumer_name,
    "business_key" AS business_key
-- ? event_id: , CAST("event_id" AS TEXT) AS event_id
-- ? comparison_version: , CAST("comparison_version" AS INTEGER) AS comparison_version
-- ? fingerprint: , CAST("fingerprint" AS TEXT) AS fingerprint
-- * comparison: , CAST("comparison" AS TEXT)
FROM "consumed_operation"
WHERE "consumer_name" = ?
    AND "business_key" IN (?);
