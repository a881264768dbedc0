//! What has a shape, and what has none.

use super::*;
use crate::declared::{ExpectRows, Statement};

const KNOWN: [&str; 3] = ["amount", "user_id", "status"];

fn shape(sql: &str) -> Option<SetShape> {
    Statement::parse(sql, KNOWN, ExpectRows::default()).unwrap().shape().cloned()
}

#[test]
fn an_insert_of_one_row_can_be_repeated() {
    let Some(SetShape::Insert(insert)) =
        shape("insert into `shop`.t (a, `b`, c) -- why\n values (:amount, NOW(6), :user_id + 1);")
    else {
        panic!("it has a shape");
    };

    assert_eq!(insert.table, "shop.t");
    assert_eq!(insert.head, "INSERT INTO `shop`.t (a, `b`, c) VALUES");
    assert_eq!(insert.row, "(?, NOW(6), ? + 1)");
}

#[test]
fn an_update_by_a_key_can_take_its_parameters_from_a_table() {
    let Some(SetShape::Update(update)) = shape(
        "UPDATE account SET points = points + :amount, `status` = :status, at = NOW(6)
         WHERE points >= :amount AND account.user_id = :user_id AND status <> 'SHUT' ",
    ) else {
        panic!("it has a shape");
    };

    assert_eq!((update.table.as_str(), update.quoted_table.as_str()), ("account", "account"));
    assert_eq!((update.key.as_str(), update.key_parameter), ("user_id", 3));
    assert_eq!(update.assigned, ["points", "status", "at"]);
    assert_eq!(update.operands, ["points", "points", "user_id"]);
    assert!(!update.multiplies);
    assert_eq!(update.roles, [Role::Operand, Role::Assigned("status".into()), Role::Operand, Role::Operand]);
    let text = update.parts.join("?");
    assert!(text.starts_with("SET points = points + ?, `status` = ?, at = NOW(6)"), "{text}");
    assert!(text.ends_with("account.user_id = ? AND status <> 'SHUT'"), "{text}");
}

#[test]
fn operands_are_columns_and_neither_functions_nor_tables() {
    let Some(SetShape::Update(update)) =
        shape("UPDATE t SET a = GREATEST(a - 2 * :amount, t.c) WHERE t.b = :user_id AND d = 1")
    else {
        panic!("it has a shape");
    };

    assert_eq!(update.operands, ["a", "c", "b"]);
    assert!(update.multiplies);
}

#[test]
fn what_may_mean_something_else_for_many_rows_has_no_shape() {
    for sql in [
        // No key, or one that is not a condition for every row.
        "UPDATE t SET a = :amount",
        "UPDATE t SET a = :amount WHERE b > :user_id",
        "UPDATE t SET a = :amount WHERE b = :user_id OR c = 1",
        "UPDATE t SET a = :amount WHERE b = 1 || c = :user_id",
        "UPDATE t SET a = :amount WHERE NOT b = :user_id",
        "UPDATE t SET a = :amount WHERE (b = :user_id)",
        "UPDATE t SET a = :amount WHERE b = :user_id + 1",
        "UPDATE t SET a = :amount WHERE x.b = :user_id",
        // The key changes.
        "UPDATE t SET b = :amount WHERE b = :user_id",
        // Rows by another order or number.
        "UPDATE t SET a = :amount WHERE b = :user_id LIMIT 1",
        "UPDATE t SET a = :amount WHERE b = :user_id ORDER BY c",
        "UPDATE t SET a = :amount WHERE b = :user_id AND c BETWEEN 1 AND 2",
        // Other rows, other tables, other ways.
        "UPDATE t SET a = (SELECT MAX(x) FROM u) WHERE b = :user_id",
        "UPDATE t JOIN u SET a = :amount WHERE b = :user_id",
        "UPDATE t, u SET a = :amount WHERE b = :user_id",
        "UPDATE t AS x SET a = :amount WHERE b = :user_id",
        "UPDATE t x SET a = :amount WHERE b = :user_id",
        "UPDATE IGNORE t SET a = :amount WHERE b = :user_id",
        "UPDATE /*+ NO_INDEX() */ t SET a = :amount WHERE b = :user_id",
        // The assignments' order would matter.
        "UPDATE t SET a = a + :amount, c = a WHERE b = :user_id",
        "UPDATE t SET a = `c`, c = :amount WHERE b = :user_id",
        "UPDATE t SET a = :amount, A = 1 WHERE b = :user_id",
        // What is computed could have another type.
        "UPDATE t SET a = a / :amount WHERE b = :user_id",
        "UPDATE t SET a = a % :amount WHERE b = :user_id",
        "UPDATE t SET a = -:amount WHERE b = :user_id",
        "UPDATE t SET a = a - -:amount WHERE b = :user_id",
        "UPDATE t SET a = 1.5 * :amount WHERE b = :user_id",
        "UPDATE t SET a = 1e3 + :amount WHERE b = :user_id",
        "UPDATE t SET a = CONCAT(a, :amount) WHERE b = :user_id",
        "UPDATE t SET a = RAND() WHERE b = :user_id",
        "UPDATE t SET a = _latin1'x' WHERE b = :user_id",
        "UPDATE t SET a = ABS(:amount) WHERE b = :user_id",
        "UPDATE t SET a = a :amount WHERE b = :user_id",
        "UPDATE t SET a = a - .b WHERE b = :user_id",
        "UPDATE t SET a = 1.b WHERE b = :user_id",
        "UPDATE t SET a = :amount a WHERE b = :user_id",
        "UPDATE t SET a = COALESCE(:amount, 1) WHERE b = :user_id",
        "UPDATE t SET a = :amount + :amount WHERE b = :user_id",
        "UPDATE t SET a = a + :amount * :amount WHERE b = :user_id",
        "UPDATE t SET a = :amount * ABS(a) WHERE b = :user_id",
        "UPDATE t SET a = (a + 1) * :amount WHERE b = :user_id",
        "UPDATE t SET a = a | :amount WHERE b = :user_id",
        "UPDATE t SET a = CASE WHEN a > 1 THEN :amount END WHERE b = :user_id",
        "UPDATE t SET a = a COLLATE x WHERE b = :user_id",
        // Names that must be quoted.
        "UPDATE t SET `a b` = :amount WHERE b = :user_id",
        "UPDATE t SET `1a` = :amount WHERE b = :user_id",
        "UPDATE t SET `` = :amount WHERE b = :user_id",
        "INSERT INTO t (a) VALUES (1::text)",
        // A name of the adapter's own.
        "UPDATE t SET consign_p0 = :amount WHERE b = :user_id",
        "UPDATE consign_each SET a = :amount WHERE b = :user_id",
        // Inserts of something else than one row.
        "INSERT INTO t (a) VALUES (:amount), (1)",
        "INSERT INTO t (a) VALUES (:amount) ON DUPLICATE KEY UPDATE a = 1",
        "INSERT INTO t (a) VALUES (:amount) AS new (x)",
        "INSERT IGNORE INTO t (a) VALUES (:amount)",
        "INSERT INTO t (a) SELECT :amount",
        "INSERT INTO t (a) VALUES ((SELECT 1))",
        "INSERT INTO t (a) VALUES (LAST_INSERT_ID())",
        "INSERT INTO t (a) VALUES (LAST_INSERT_ID ())",
        "INSERT INTO t VALUES (:amount)",
        "INSERT INTO t (a) VALUES (:amount) RETURNING a",
        "INSERT t (a) VALUES (:amount)",
        "REPLACE INTO t (a) VALUES (:amount)",
        "DELETE FROM t WHERE b = :user_id",
        "WITH x AS (SELECT 1) UPDATE t SET a = :amount WHERE b = :user_id",
    ] {
        assert_eq!(shape(sql), None, "{sql}");
    }
}

#[test]
fn what_is_harmless_keeps_its_shape() {
    for sql in [
        "UPDATE t SET a = GREATEST(a - :amount, 0) WHERE b = :user_id",
        "UPDATE t SET a = :amount * a + b WHERE b = :user_id",
        "UPDATE t SET a = 2 * :amount WHERE b = :user_id AND NOT (a = 1) AND t.c IS NOT NULL",
        "UPDATE `s`.`t` SET a = :status WHERE b=:user_id",
        "UPDATE _t SET _a = :amount WHERE b_ = :user_id",
        "INSERT INTO t (a, b, c) VALUES (:amount / 1.5, -:amount, CONCAT('x', :status, \"y\"))",
        "INSERT INTO t (a) VALUES ((:amount + 1) % 2);",
    ] {
        assert!(shape(sql).is_some(), "{sql}");
    }
}

#[test]
fn a_word_of_sql_in_quotes_is_a_name() {
    assert!(matches!(
        shape("UPDATE `order` SET `limit` = :amount WHERE `key` = :user_id"),
        Some(SetShape::Update(_))
    ));
    assert_eq!(shape("UPDATE order SET limit = :amount WHERE key = :user_id"), None);
}
