-- Purpose: whether a parked delivery's time has come, and the gaps whose step has become the next one.
-- Locks: none, so that idle consumers disturb nobody.
-- Index: `idx_due`, in order; `idx_gap`, then the primary key of `consign_progress`.
-- Guards: rows under a lease that runs are somebody else's. A gap whose step was applied meanwhile comes out too: it is
--   stale, and finds that out in its own transaction.
(
    SELECT `id` AS id,
        FALSE AS next
    FROM `consign_parked_delivery` FORCE INDEX (`idx_due`)
    WHERE `consumer_name` = ?
        AND `due_at` <= NOW(6)
        AND (`locked_until` IS NULL OR `locked_until` <= NOW(6))
    ORDER BY `due_at`
    LIMIT 1
)
UNION ALL
(
    SELECT parked.`id` AS id,
        TRUE AS next
    FROM `consign_parked_delivery` AS parked FORCE INDEX (`idx_gap`)
    STRAIGHT_JOIN `consign_progress` AS progress
        ON progress.`consumer_name` = parked.`consumer_name`
        AND progress.`aggregate` = parked.`aggregate`
    WHERE parked.`consumer_name` = ?
        AND parked.`aggregate` IS NOT NULL
        AND parked.`reason` = 'GAP'
        AND progress.`version` >= parked.`version` - 1
        AND parked.`due_at` > NOW(6)
        AND (parked.`locked_until` IS NULL OR parked.`locked_until` <= NOW(6))
    LIMIT ?
);
