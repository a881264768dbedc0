-- Purpose: the embedded queue's own tables; may share a file with the application's tables.
-- Locks: the file's write lock, taken by the surrounding BEGIN IMMEDIATE.
-- Times are milliseconds since the Unix epoch, made by SQLite. The body stands last so that reading the other
-- columns never walks its overflow pages. The index ends in the row id by itself: one queue in order of arrival.
CREATE TABLE IF NOT EXISTS consign_queue (
    name TEXT NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS consign_queue_binding (
    topic TEXT NOT NULL,
    queue TEXT NOT NULL REFERENCES consign_queue (name),
    PRIMARY KEY (topic, queue)
) STRICT;
CREATE TABLE IF NOT EXISTS consign_queue_message (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL REFERENCES consign_queue (name),
    message_id TEXT NOT NULL,
    type TEXT NOT NULL,
    headers TEXT NOT NULL,
    available_at INTEGER NOT NULL,
    delivery_count INTEGER NOT NULL DEFAULT 0,
    lease_token TEXT,
    locked_until INTEGER,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS consign_queue_message_queue ON consign_queue_message (queue);
