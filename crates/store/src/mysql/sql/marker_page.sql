-- Purpose: the next markers in the order of their key, and whether each is old enough to go.
-- Locks: none.
-- Index: primary key, in order.
-- Guards: a date without a year is none; servers without strict mode put it where a value did not fit.
-- Why: both servers find a place in an index by these two comparisons, and not by one of two columns at once.
SELECT `consumer_name` AS consumer_name,
    `business_key` AS business_key,
    DATE_FORMAT(`applied_at`, '%Y-%m-%d %H:%i:%s.%f') AS applied_at,
    COALESCE(YEAR(`applied_at`), 0) = 0 AS undated,
    COALESCE(YEAR(`applied_at`) > 0 AND `applied_at` < CAST(? AS DATETIME(6)), FALSE) AS old
FROM `consumed_operation`
WHERE `consumer_name` IS NOT NULL
-- ? after: AND (`consumer_name` > ? OR (`consumer_name` = ? AND `business_key` > ?))
ORDER BY `consumer_name`, `business_key`
LIMIT ?;
