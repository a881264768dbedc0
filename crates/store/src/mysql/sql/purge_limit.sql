-- Purpose: the date before which markers are old, once for a whole purge, so that it ends.
-- Locks: none.
SELECT DATE_FORMAT(NOW(6) - INTERVAL ? MICROSECOND, '%Y-%m-%d %H:%i:%s.%f') AS applied_before;
