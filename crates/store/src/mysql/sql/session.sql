-- Purpose: what every connection of consign's pools must have, right after it connects.
-- Locks: none.
-- Why: READ COMMITTED takes no gap locks, so that claims and producers do not deadlock. A short lock wait and a
--   statement limit bound every unit on the server's side, where a dropped client cannot (MariaDB counts seconds of
--   any statement, MySQL milliseconds of SELECTs). Strict mode turns silent truncation into an error; the server's
--   other modes stay. Autocommit, since the pool's ROLLBACK relies on it.
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET SESSION sql_mode = CONCAT_WS(',', NULLIF(@@SESSION.sql_mode, ''), 'STRICT_TRANS_TABLES'),
    innodb_lock_wait_timeout = 2,
    lock_wait_timeout = 5,
    autocommit = 1;
SET SESSION /*M! max_statement_time = 10 */ /*!80000 max_execution_time = 10000 */;
