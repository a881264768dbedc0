-- Purpose: deletes the markers of one page.
-- Locks: the write lock, for one page.
-- Index: primary key.
-- Guards: the age since the marker was made, which nothing changes: none that the broker may still ask about.
DELETE FROM "consign_transaction"
WHERE "transaction_key" IN (?)
    AND "created_at" < strftime('%Y-%m-%d %H:%M:%f000', 'now', ?);
