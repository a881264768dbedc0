-- Purpose: deliveries that wait.
-- Locks: none.
SELECT COUNT(*)
FROM `consign_parked_delivery`;
