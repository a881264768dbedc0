-- Purpose: how far a consumer came with some aggregates.
-- Locks: the rows, by primary key ascending, until the unit ends: nobody else advances them.
-- Index: primary key.
SELECT `aggregate` AS aggregate,
    CAST(`version` AS SIGNED) AS version,
    `state` AS state
FROM `consign_progress` FORCE INDEX (PRIMARY)
WHERE `consumer_name` = ?
    AND `aggregate` IN (?)
ORDER BY `aggregate`
FOR UPDATE;
