-- The points story on MySQL 8.0.17 and later. May be run again: what exists is left alone.
-- On MariaDB write utf8mb4_nopad_bin for utf8mb4_0900_bin.

-- consign's contract tables, as people have them already. The collation compares keys byte by byte and does not
-- ignore trailing spaces: `Order:42`, `order:42` and `order:42 ` are three different keys.

CREATE TABLE IF NOT EXISTS outbox_event (
    event_id     VARCHAR(64)  NOT NULL,
    aggregate_id BIGINT       NOT NULL,
    event_type   VARCHAR(64)  NOT NULL,
    payload      JSON         NOT NULL,
    status       VARCHAR(16)  NOT NULL,
    attempts     INT          NOT NULL DEFAULT 0,
    available_at DATETIME(6)  NOT NULL,
    lease_token  VARCHAR(64)  NULL,
    locked_until DATETIME(6)  NULL,
    created_at   DATETIME(6)  NOT NULL,
    PRIMARY KEY (event_id),
    KEY idx_pending (status, available_at, event_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_0900_bin;

-- user_id and amount are the comparison columns: they tell a repeat from a conflict. The sms consumer compares
-- user_id only, so amount may be NULL.
CREATE TABLE IF NOT EXISTS consumed_operation (
    consumer_name VARCHAR(64)  NOT NULL,
    business_key  VARCHAR(128) NOT NULL,
    event_id      VARCHAR(64)  NOT NULL,
    user_id       BIGINT       NULL,
    amount        INT          NULL,
    PRIMARY KEY (consumer_name, business_key)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_0900_bin;

-- The order service's table.

CREATE TABLE IF NOT EXISTS purchase_order (
    id     BIGINT      NOT NULL,
    status VARCHAR(16) NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

-- The consumers' tables. sms_message has no unique key on purpose: a doubled effect would show.

CREATE TABLE IF NOT EXISTS points_account (
    user_id BIGINT NOT NULL,
    points  BIGINT NOT NULL,
    PRIMARY KEY (user_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

CREATE TABLE IF NOT EXISTS sms_message (
    id         BIGINT      NOT NULL AUTO_INCREMENT,
    order_id   BIGINT      NOT NULL,
    user_id    BIGINT      NOT NULL,
    event_type VARCHAR(64) NOT NULL,
    PRIMARY KEY (id),
    KEY idx_order (order_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

INSERT INTO points_account (user_id, points)
VALUES (7, 0), (8, 0), (9, 0)
ON DUPLICATE KEY UPDATE user_id = points_account.user_id;
