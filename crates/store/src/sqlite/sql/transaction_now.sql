-- Purpose: the time in microseconds since the Unix epoch, in which transactions are dated.
-- Locks: none.
SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 AS now_micros;
