-- Purpose: records attempts whose lease ended, a row for each, just before the sweep changes the events, in its
--   transaction.
-- Locks: the new rows; the events are locked already.
-- Index: the unique index on event_id.
-- Guards: `status`, as in the sweep. A row that something else put there has no token.
-- Why: see attempt_settle.sql.
INSERT INTO consign_attempt (event_id, lease_token, relay, recorded_at, outcome, detail
-- ? started: , started_at
)
SELECT substr("event_id", 1, 255), COALESCE("lease_token", ''), ?, strftime('%Y-%m-%d %H:%M:%f000', 'now'), 'swept', ?
-- ? started: , strftime('%Y-%m-%d %H:%M:%f000', "locked_until", ?)
FROM "outbox_event"
WHERE "event_id" IN (?)
    AND "status" = 'SENDING';
