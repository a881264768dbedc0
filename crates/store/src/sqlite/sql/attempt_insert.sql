-- Purpose: records a settlement that came too late, in the settle's own transaction.
-- Locks: the write lock, held by the settle.
INSERT INTO "consign_attempt" ("event_id", "lease_token", "relay", "recorded_at", "outcome", "detail")
VALUES (?, ?, ?, strftime('%Y-%m-%d %H:%M:%f000', 'now'), ?, ?);
