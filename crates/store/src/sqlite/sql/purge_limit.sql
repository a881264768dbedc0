-- Purpose: the date before which markers are old, once for a whole purge, so that it ends.
-- Locks: none.
SELECT strftime('%Y-%m-%d %H:%M:%f000', 'now', ?) AS applied_before;
