-- Purpose: a message is done. Locks: the file's write lock. Guard: the token; no row means that the lease was lost.
DELETE FROM consign_queue_message
WHERE id = ?1
  AND lease_token = ?2
