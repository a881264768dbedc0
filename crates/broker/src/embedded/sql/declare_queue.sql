-- Purpose: make a queue known. Locks: the file's write lock. Guard: declaring again changes nothing.
INSERT INTO consign_queue (name, created_at)
VALUES (?1, CAST(unixepoch('subsec') * 1000 AS INTEGER))
ON CONFLICT (name) DO NOTHING
