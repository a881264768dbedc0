-- Purpose: hand back a message that no consumer has seen: its delivery does not count. Locks: the file's write lock.
-- Guard: the token.
UPDATE consign_queue_message
SET delivery_count = delivery_count - 1,
    lease_token = NULL,
    locked_until = NULL
WHERE id = ?1
  AND lease_token = ?2
