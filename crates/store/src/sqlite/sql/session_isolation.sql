-- Purpose: the journal mode in force, to verify that setting it had effect: some file systems cannot do it.
-- Locks: none.
PRAGMA journal_mode;
