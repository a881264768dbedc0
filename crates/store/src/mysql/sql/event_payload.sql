-- Purpose: the payload of the event that was applied, for the record of a conflict with it; no more than is kept.
-- Locks: none.
-- Index: primary key.
SELECT LEFT(`payload`, ?) AS payload,
    OCTET_LENGTH(`payload`) AS payload_bytes
FROM `outbox_event`
WHERE `event_id` = ?;
