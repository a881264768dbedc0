-- Purpose: removes a delivery that was processed.
-- Locks: the row.
-- Index: primary key.
-- Guards: the token: a row that was leased again or parked again is not touched.
DELETE FROM `consign_parked_delivery`
WHERE `id` = ?
    AND `lease_token` = ?;
