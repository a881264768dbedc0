-- Purpose: is anything due in a queue? Asked before a claim, so that an idle consumer never takes the write lock.
-- Locks: none in WAL mode. Index: consign_queue_message_queue.
SELECT EXISTS (
    SELECT 1
    FROM consign_queue_message
    WHERE queue = ?1
      AND available_at <= CAST(unixepoch('subsec') * 1000 AS INTEGER)
      AND (locked_until IS NULL OR locked_until <= CAST(unixepoch('subsec') * 1000 AS INTEGER))
)
