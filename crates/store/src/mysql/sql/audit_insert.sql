-- Purpose: who did what, in the transaction that does it.
-- Locks: none that another waits for.
INSERT INTO `consign_audit` (`at`, `actor`, `action`, `subject`, `detail`)
VALUES
-- @row
(NOW(6), ?, ?, ?, ?)
-- @end
;
