-- Purpose: one copy of a message into every queue bound to its route key. Locks: the file's write lock.
-- Guard: DISTINCT, so that two matching topics of one queue make one copy. No row: nothing is bound.
-- Prefixes are compared as substrings, byte for byte: LIKE would fold case and read % and _ in topics.
INSERT INTO consign_queue_message (queue, message_id, type, headers, available_at, body)
SELECT DISTINCT queue, ?2, ?3, ?4, CAST(unixepoch('subsec') * 1000 AS INTEGER), ?5
FROM consign_queue_binding
WHERE topic = ?1
   OR (substr(topic, -1) = '*' AND substr(?1, 1, length(topic) - 1) = substr(topic, 1, length(topic) - 1))
RETURNING id
