-- Purpose: records how attempts ended, a row for each, just before the settle changes the events, in its transaction.
-- Locks: the new rows. READ COMMITTED reads the outbox without locks; the statement that changes the rows decides.
-- Index: primary key of the outbox.
-- Guards: `status` and `lease_token`, as in the settle that follows, which compares its rows with the ids and takes both back.
-- Why: INSERT … SELECT sends each id and nothing else per row, so that a list stays one packet, and takes the token and
--   the lease from the row. The log's own columns stand unquoted: quoted names are the outbox's and may be mapped.
INSERT INTO consign_attempt (event_id, lease_token, relay, recorded_at, outcome, detail
-- ? started: , started_at
)
SELECT LEFT(`event_id`, 255), `lease_token`, ?, NOW(6), ?, ?
-- ? started: , `locked_until` - INTERVAL ? MICROSECOND
FROM `outbox_event`
WHERE `event_id` IN (?)
    AND `status` = 'SENDING'
    AND `lease_token` = ?;
