-- Purpose: lifts the statement limit for a migration, whose ALTER may copy a large table.
-- Locks: none.
-- Why: a short wait for the table's metadata lock stays: every statement on the table queues behind a waiting ALTER.
SET SESSION /*M! max_statement_time = 0 */ /*!80000 max_execution_time = 0 */;
