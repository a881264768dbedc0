-- Purpose: the largest statement this session may send, in bytes.
-- Locks: none.
SELECT CAST(@@SESSION.max_allowed_packet AS SIGNED) AS max_allowed_packet;
