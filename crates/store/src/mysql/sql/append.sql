-- Purpose: appends events inside the producer's own transaction.
-- Locks: the new rows, in the order of the producer's events.
-- Why: dates are UTC turned into the zone the relay reads them in (the configured one, else the server's), whatever
--   zone the producer's session has; a server that does not know the zone's name falls back to the session's.
INSERT INTO `outbox_event` (
    `event_id`,
    `aggregate_id`,
    `event_type`,
    `payload`,
    `status`,
    `attempts`,
    `available_at`,
    `created_at`
-- ? aggregate_type: , `aggregate_type`
-- ? aggregate_version: , `aggregate_version`
-- ? business_key: , `business_key`
-- ? headers: , `headers`
-- ? destination: , `destination`
-- ? route_key: , `route_key`
)
VALUES
-- @row
(
    ?,
    ?,
    ?,
    ?,
    'NEW',
    0,
    COALESCE(CONVERT_TZ(UTC_TIMESTAMP(6), '+00:00', COALESCE(?, @@GLOBAL.time_zone)), NOW(6))
        + INTERVAL ? MICROSECOND,
    COALESCE(CONVERT_TZ(UTC_TIMESTAMP(6), '+00:00', COALESCE(?, @@GLOBAL.time_zone)), NOW(6))
-- ? aggregate_type: , ?
-- ? aggregate_version: , ?
-- ? business_key: , ?
-- ? headers: , ?
-- ? destination: , ?
-- ? route_key: , ?
)
-- @end
;
