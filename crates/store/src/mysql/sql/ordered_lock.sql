-- Purpose: locks the rows that an ordered claim has chosen, and reads them in full, as they are once they are marked.
-- Locks: rows by primary key ascending, in the order of the list's range scan; none is waited for.
-- Index: primary key.
-- Guards: `status` = 'NEW' and SKIP LOCKED: what another claimer or an operator has is left out, and with it the rest of
--   its chain. Ages and dates are computed here, in the session's time zone; the process never interprets a date.
SELECT `event_id` AS event_id,
    CAST(`aggregate_id` AS CHAR) AS aggregate_id,
    `event_type` AS event_type,
    `payload` AS payload,
    LEAST(CAST(COALESCE(`attempts`, 0) AS SIGNED) + 1, 2147483647) AS attempts,
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
    AND `status` = 'NEW'
FOR UPDATE SKIP LOCKED;
