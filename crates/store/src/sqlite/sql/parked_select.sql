-- Purpose: parked deliveries whose time has come, or whose step has become the next one, oldest first.
-- Locks: none for the look before; the write lock, held since BEGIN IMMEDIATE, when they are leased.
-- Index: `consign_parked_due`, in order, and `consign_parked_step`; each brings no more rows than are wanted.
-- Guards: rows under a lease that runs are somebody else's. A gap whose step was applied meanwhile comes out too: it is
--   stale, and finds that out in its own transaction.
SELECT "id"
FROM (
    SELECT "id", "due_at"
    FROM (
        SELECT "id", "due_at"
        FROM "consign_parked_delivery"
        WHERE "consumer_name" = ?1
            AND "due_at" <= strftime('%Y-%m-%d %H:%M:%f000', 'now')
            AND ("locked_until" IS NULL OR "locked_until" <= strftime('%Y-%m-%d %H:%M:%f000', 'now'))
        ORDER BY "due_at", "id"
        LIMIT ?2
    )
    UNION
    SELECT "id", "due_at"
    FROM (
        SELECT parked."id", parked."due_at"
        FROM "consign_parked_delivery" AS parked
        JOIN "consign_progress" AS progress
            ON progress."consumer_name" = parked."consumer_name"
            AND progress."aggregate" = parked."aggregate"
            AND progress."version" >= parked."version" - 1
        WHERE parked."consumer_name" = ?1
            AND parked."reason" = 'GAP'
            AND (parked."locked_until" IS NULL OR parked."locked_until" <= strftime('%Y-%m-%d %H:%M:%f000', 'now'))
        LIMIT ?2
    )
)
ORDER BY "due_at", "id"
LIMIT ?2;
