-- Purpose: the age of the oldest row that should be on its way, and how many leases have ended unswept.
-- Locks: none.
-- Index: `idx_pending`, its NEW and SENDING parts.
-- Why: a row nobody tried yet and that is not due is waiting as its producer wished, so it is not pending.
SELECT CAST(ROUND(MAX(julianday('now') - julianday("created_at")) * 86400000.0) AS INTEGER) * 1000 AS oldest_micros,
    COUNT(CASE WHEN "status" = 'SENDING'
        AND ("locked_until" <= strftime('%Y-%m-%d %H:%M:%f000', 'now') OR "locked_until" IS NULL) THEN 1 END) AS expired
FROM "outbox_event"
WHERE "status" IN ('NEW', 'SENDING')
    AND ("status" = 'SENDING'
        OR "available_at" <= strftime('%Y-%m-%d %H:%M:%f000', 'now')
        OR "attempts" > 0);
