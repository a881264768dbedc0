-- Purpose: the server's time in microseconds since the Unix epoch, in which transactions are dated.
-- Locks: none.
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now_micros;
