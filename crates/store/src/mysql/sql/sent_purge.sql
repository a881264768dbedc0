-- Purpose: deletes old sent rows that a page named.
-- Locks: the rows named, by primary key ascending, then their `idx_pending` entries. Claims and producers use other rows.
-- Index: primary key.
-- Guards: `status` and the date, as in sent_page.sql: a row that was replayed meanwhile stays.
DELETE FROM `outbox_event`
WHERE `event_id` IN (?)
    AND `status` = 'SENT'
    AND `available_at` < CAST(? AS DATETIME(6)) -- ? !sent_at
-- ? sent_at: AND COALESCE(`sent_at`, `available_at`) < CAST(? AS DATETIME(6))
;
