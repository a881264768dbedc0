-- Purpose: records a settlement that came too late, in the settle's own transaction.
-- Locks: the new row.
INSERT INTO `consign_attempt` (`event_id`, `lease_token`, `relay`, `recorded_at`, `outcome`, `detail`)
VALUES (?, ?, ?, NOW(6), ?, ?);
