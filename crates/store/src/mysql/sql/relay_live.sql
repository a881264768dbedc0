-- Purpose: the relays that are there.
-- Locks: none.
-- Index: primary key.
SELECT `relay` AS relay
FROM `consign_relay`
WHERE `outbox` = ?
    AND `partition_count` = ?
    AND `seen_until` > NOW(6);
