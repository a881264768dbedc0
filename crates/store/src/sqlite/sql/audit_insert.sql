-- Purpose: who did what, in the transaction that does it.
-- Locks: the write lock, held by the action.
INSERT INTO "consign_audit" ("at", "actor", "action", "subject", "detail")
VALUES (strftime('%Y-%m-%d %H:%M:%f000', 'now'), ?, ?, ?, ?);
