-- Purpose: what every connection of consign's pools must have, right after it connects.
-- Locks: switching to WAL takes the whole file for a moment, once in its life.
-- Why: in WAL mode readers and the writer do not shut each other out. FULL makes every COMMIT durable before it
--   returns: with NORMAL a power cut could take back a marker whose delivery was already acknowledged.
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
