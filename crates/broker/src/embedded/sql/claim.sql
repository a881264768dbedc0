-- Purpose: lease due messages, oldest first, under a fresh token. Locks: the file's write lock.
-- Index: consign_queue_message_queue, read in row id order. Guard: a live lease of somebody else is skipped; one
-- whose time is over is taken, and the higher delivery count tells so.
UPDATE consign_queue_message
SET lease_token = ?2,
    locked_until = CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?3,
    delivery_count = delivery_count + 1
WHERE id IN (
    SELECT id
    FROM consign_queue_message
    WHERE queue = ?1
      AND available_at <= CAST(unixepoch('subsec') * 1000 AS INTEGER)
      AND (locked_until IS NULL OR locked_until <= CAST(unixepoch('subsec') * 1000 AS INTEGER))
    ORDER BY id
    LIMIT ?4
)
RETURNING id, message_id, type, headers, delivery_count, body
