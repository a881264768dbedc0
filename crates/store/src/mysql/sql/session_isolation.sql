-- Purpose: the isolation level in force, to verify that setting it had effect.
-- Locks: none.
SELECT CAST(/*M! @@SESSION.tx_isolation */ /*!80000 @@SESSION.transaction_isolation */ AS CHAR);
