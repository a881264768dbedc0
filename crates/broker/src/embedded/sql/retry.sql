-- Purpose: hand a message back, due after a delay. Locks: the file's write lock.
-- Guard: the token; no row means that the lease was lost.
UPDATE consign_queue_message
SET available_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?3,
    lease_token = NULL,
    locked_until = NULL
WHERE id = ?1
  AND lease_token = ?2
