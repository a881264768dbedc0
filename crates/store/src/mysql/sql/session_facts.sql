-- Purpose: what `doctor` reports about the server and the session.
-- Locks: none.
SELECT CAST(VERSION() AS CHAR) AS version,
    CAST(@@GLOBAL.sql_mode AS CHAR) AS global_sql_mode,
    CAST(@@SESSION.time_zone AS CHAR) AS session_time_zone,
    CAST(@@GLOBAL.time_zone AS CHAR) AS global_time_zone,
    CAST(@@GLOBAL.max_allowed_packet AS CHAR) AS max_allowed_packet,
    CAST(@@GLOBAL.wait_timeout AS CHAR) AS wait_timeout,
    CAST(@@GLOBAL.read_only AS CHAR) AS read_only,
    CAST(/*M! @@SESSION.tx_isolation */ /*!80000 @@SESSION.transaction_isolation */ AS CHAR) AS isolation,
    CAST(ROUND(UNIX_TIMESTAMP(NOW(6)) * 1000000) AS CHAR) AS now_micros,
    CAST(@@GLOBAL.log_bin AS CHAR) AS log_bin,
    CAST(@@GLOBAL.binlog_format AS CHAR) AS binlog_format;
