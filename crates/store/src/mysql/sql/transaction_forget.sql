-- Purpose: deletes the markers of one page.
-- Locks: the rows named, by primary key ascending.
-- Index: primary key.
-- Guards: the age since the marker was made, which nothing changes: none that the broker may still ask about.
DELETE FROM `consign_transaction`
WHERE `transaction_key` IN (?)
    AND `created_at` < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND;
