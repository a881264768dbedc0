-- Purpose: the parked deliveries that were just leased, in full, without the order: a sort would carry payloads.
-- Locks: none of its own.
-- Index: primary key.
-- Guards: the token, so that only rows of this very lease are read.
SELECT "id" AS id,
    "message_id" AS message_id,
    "message_type" AS message_type,
    "source" AS source,
    "headers" AS headers,
    "payload" AS payload,
    "reason" AS reason,
    "attempts" AS attempts,
    "due_at" <= strftime('%Y-%m-%d %H:%M:%f000', 'now') AS overdue
FROM "consign_parked_delivery"
WHERE "id" IN (?)
    AND "lease_token" = ?;
