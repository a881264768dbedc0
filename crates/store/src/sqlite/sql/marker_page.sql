-- Purpose: the next markers in the order of their key, and whether each is old enough to go.
-- Locks: none.
-- Index: primary key, in order.
-- Guards: SQLite keeps whatever is written, and any number is smaller than any text: only dates in the form that
--   sorts by time can be old.
SELECT "consumer_name" AS consumer_name,
    "business_key" AS business_key,
    CAST("applied_at" AS TEXT) AS applied_at,
    "applied_at" IS NULL AS undated,
    COALESCE(typeof("applied_at") = 'text'
        AND "applied_at" GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9] [0-9][0-9]:[0-9][0-9]*'
        AND "applied_at" < ?, 0) AS old
FROM "consumed_operation"
WHERE "consumer_name" IS NOT NULL
-- ? after:     AND ("consumer_name", "business_key") > (?, ?)
ORDER BY "consumer_name", "business_key"
LIMIT ?;
