-- Purpose: the claimed rows in full, in the claim's transaction.
-- Locks: none of its own; the rows are locked by the claim.
-- Index: primary key.
-- Guards: the token, so that only rows of this very claim are read. Ages and dates are computed here, in the
--   session's time zone; the process never interprets a date.
SELECT `event_id` AS event_id,
    CAST(`aggregate_id` AS CHAR) AS aggregate_id,
    `event_type` AS event_type,
    `payload` AS payload,
    CAST(`attempts` AS SIGNED) AS attempts,
    CAST(NULLIF(UNIX_TIMESTAMP(`created_at`), 0) * 1000000 AS SIGNED) AS created_at_micros,
    TIMESTAMPDIFF(MICROSECOND, `created_at`, NOW(6)) AS age_micros
-- ? aggregate_type: , `aggregate_type` AS aggregate_type
-- ? aggregate_version: , CAST(`aggregate_version` AS SIGNED) AS aggregate_version
-- ? destination: , `destination` AS destination
-- ? route_key: , `route_key` AS route_key
-- ? headers: , `headers` AS headers
-- ? business_key: , `business_key` AS business_key
FROM `outbox_event`
WHERE `event_id` IN (?)
    AND `lease_token` = ?;
