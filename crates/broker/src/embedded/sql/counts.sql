-- Purpose: what each queue holds, for status. Locks: none in WAL mode. Index: consign_queue_message_queue.
SELECT
    consign_queue.name,
    COUNT(consign_queue_message.id) FILTER (
        WHERE available_at <= CAST(unixepoch('subsec') * 1000 AS INTEGER)
          AND (locked_until IS NULL OR locked_until <= CAST(unixepoch('subsec') * 1000 AS INTEGER))
    ),
    COUNT(consign_queue_message.id) FILTER (
        WHERE available_at > CAST(unixepoch('subsec') * 1000 AS INTEGER)
          AND (locked_until IS NULL OR locked_until <= CAST(unixepoch('subsec') * 1000 AS INTEGER))
    ),
    COUNT(consign_queue_message.id) FILTER (
        WHERE locked_until > CAST(unixepoch('subsec') * 1000 AS INTEGER)
    )
FROM consign_queue
LEFT JOIN consign_queue_message ON consign_queue_message.queue = consign_queue.name
GROUP BY consign_queue.name
ORDER BY consign_queue.name
