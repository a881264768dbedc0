-- Purpose: gives the rows just read to this claim: SENDING under its token, the lease counted from the database's clock.
-- Locks: rows by primary key ascending; they are locked already.
-- Index: primary key.
-- Guards: `status` = 'NEW', and the caller compares the affected rows with the ids: a difference rolls back.
--   The attempts stop at the column's maximum, so that no counter can make a row unclaimable.
UPDATE `outbox_event`
SET `status` = 'SENDING',
    `lease_token` = ?,
    `locked_until` = NOW(6) + INTERVAL ? MICROSECOND,
    `attempts` = LEAST(COALESCE(`attempts`, 0) + 1, 2147483647)
WHERE `event_id` IN (?)
    AND `status` = 'NEW';
