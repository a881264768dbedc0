-- Purpose: records how attempts ended, a row for each, just before the settle changes the events, in its transaction.
-- Locks: the write lock, held by the unit.
-- Index: the unique index on event_id.
-- Guards: `status` and `lease_token`, as in the settle that follows, which compares its rows with the ids and takes both back.
-- Why: INSERT … SELECT sends each id and nothing else per row, so that a list stays one packet, and takes the token and
--   the lease from the row. The log's own columns stand unquoted: quoted names are the outbox's and may be mapped.
INSERT INTO consign_attempt (event_id, lease_token, relay, recorded_at, outcome, detail
-- ? started: , started_at
)
SELECT substr("event_id", 1, 255), "lease_token", ?, strftime('%Y-%m-%d %H:%M:%f000', 'now'), ?, ?
-- ? started: , strftime('%Y-%m-%d %H:%M:%f000', "locked_until", ?)
FROM "outbox_event"
WHERE "event_id" IN (?)
    AND "status" = 'SENDING'
    AND "lease_token" = ?;
