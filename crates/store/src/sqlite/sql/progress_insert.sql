-- Purpose: an aggregate's first step.
-- Locks: the write lock, held by the unit.
-- Guards: a plain INSERT: a row that is there after all means that somebody else took the first step.
INSERT INTO "consign_progress" ("version", "state", "consumer_name", "aggregate", "updated_at")
VALUES (?, ?, ?, ?, strftime('%Y-%m-%d %H:%M:%f000', 'now'));
