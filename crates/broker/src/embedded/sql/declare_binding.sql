-- Purpose: bind a topic, or a prefix followed by *, to a queue. Locks: the file's write lock.
-- Guard: binding again changes nothing.
INSERT INTO consign_queue_binding (topic, queue)
VALUES (?1, ?2)
ON CONFLICT (topic, queue) DO NOTHING
