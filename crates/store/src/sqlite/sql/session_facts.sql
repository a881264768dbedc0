-- Purpose: what `doctor` reports about the file and the session.
-- Locks: none.
SELECT sqlite_version() AS version,
    (SELECT "synchronous" FROM pragma_synchronous) AS synchronous,
    (SELECT "encoding" FROM pragma_encoding) AS encoding,
    CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 AS now_micros;
