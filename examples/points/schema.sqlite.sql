-- The points story on SQLite. May be run again: what exists is left alone.
-- Dates are text in UTC with microseconds, so that they sort by time; text keys compare byte by byte.

-- consign's contract tables. A payload declared BLOB keeps its text as it was written.

CREATE TABLE IF NOT EXISTS outbox_event (
    event_id     VARCHAR(64) NOT NULL PRIMARY KEY,
    aggregate_id BIGINT      NOT NULL,
    event_type   VARCHAR(64) NOT NULL,
    payload      BLOB        NOT NULL,
    status       VARCHAR(16) NOT NULL,
    attempts     INT         NOT NULL DEFAULT 0,
    available_at TEXT        NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    lease_token  VARCHAR(64) NULL,
    locked_until TEXT        NULL,
    created_at   TEXT        NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
);

CREATE INDEX IF NOT EXISTS idx_pending ON outbox_event (status, available_at, event_id);

CREATE TABLE IF NOT EXISTS consumed_operation (
    consumer_name VARCHAR(64)  NOT NULL,
    business_key  VARCHAR(128) NOT NULL,
    event_id      VARCHAR(64)  NOT NULL,
    user_id       BIGINT       NULL,
    amount        INT          NULL,
    PRIMARY KEY (consumer_name, business_key)
);

-- The order service's table.

CREATE TABLE IF NOT EXISTS purchase_order (
    id     BIGINT      NOT NULL PRIMARY KEY,
    status VARCHAR(16) NOT NULL
);

-- The consumers' tables. sms_message has no unique key on purpose: a doubled effect would show.

CREATE TABLE IF NOT EXISTS points_account (
    user_id BIGINT NOT NULL PRIMARY KEY,
    points  BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS sms_message (
    id         INTEGER     PRIMARY KEY,
    order_id   BIGINT      NOT NULL,
    user_id    BIGINT      NOT NULL,
    event_type VARCHAR(64) NOT NULL
);

INSERT INTO points_account (user_id, points)
VALUES (7, 0), (8, 0), (9, 0)
ON CONFLICT DO NOTHING;
