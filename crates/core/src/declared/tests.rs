use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::comparison::fingerprint;
use super::*;
use crate::guard::{Progress, Step};
use crate::ports::{Advance, CommitError, Mark, StoreError};
use crate::value::ValueType;

/// The points story's consumer: key `order:{order_id}:paid`, compares user and amount.
fn points_award(comparison: DeclaredComparison) -> DeclaredConsumer {
    let award = "UPDATE points_account SET points = points + :amount WHERE user_id = :user_id";
    running(&[(award, ExpectRows::Exactly(1)), (NOTE, ExpectRows::Any)], comparison)
}

const NOTE: &str = "INSERT INTO note (event_id) VALUES (:event_id)";

/// The same consumer with other statements.
fn running(statements: &[(&str, ExpectRows)], comparison: DeclaredComparison) -> DeclaredConsumer {
    let bindings = Bindings::new(BTreeMap::from([
        bound("order_id", "/orderId", ValueType::Integer),
        bound("user_id", "/userId", ValueType::Integer),
        bound("amount", "/amount", ValueType::Decimal),
    ]))
    .unwrap();
    let parse = |(sql, rows): &(&str, ExpectRows)| Statement::parse(sql, bindings.known_names(), *rows);
    let statements = statements.iter().map(|statement| parse(statement).unwrap()).collect();
    let key = KeyTemplate::parse("order:{order_id}:paid").unwrap();
    DeclaredConsumer::new("points-award", key, bindings, comparison, statements).unwrap()
}

fn bound(name: &str, pointer: &str, value_type: ValueType) -> (String, Binding) {
    (name.into(), Binding { source: BindingSource::Pointer(pointer.into()), value_type, required: true })
}

fn columns(names: &[&str]) -> DeclaredComparison {
    DeclaredComparison::Columns(
        names
            .iter()
            .map(|name| ComparedBinding { column: (*name).into(), binding: (*name).into() })
            .collect(),
    )
}

fn fingerprint_of_both() -> DeclaredComparison {
    DeclaredComparison::Fingerprint(vec!["user_id".into(), "amount".into()])
}

fn message(id: &str, body: &str) -> Message {
    Message {
        id: Some(id.into()),
        message_type: Some("OrderPaid".into()),
        body: Bytes::copy_from_slice(body.as_bytes()),
        ..Message::default()
    }
}

const PAID: &str = r#"{"orderId":42,"userId":7,"amount":100}"#;

/// An inbox transaction that answers with prepared row counts and remembers what it ran.
struct Recorded {
    rows: Vec<u64>,
    ran: Vec<(String, Vec<Value>)>,
}

impl InboxTransaction for Recorded {
    async fn lock_progress(&mut self, _: &str, _: &[&str]) -> Result<Vec<Option<Progress>>, StoreError> {
        panic!("a declared change asks no guard")
    }

    async fn save_progress(&mut self, _: &str, _: &[Advance<'_>]) -> Result<(), StoreError> {
        panic!("a declared change moves no guard")
    }

    async fn mark(&mut self, _: &Operation) -> Result<Mark, StoreError> {
        Ok(Mark::Inserted)
    }

    async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        self.ran.push((sql.to_owned(), values.to_vec()));
        self.rows.get(self.ran.len() - 1).copied().ok_or_else(|| StoreError::Unavailable("gone".into()))
    }

    async fn commit(self) -> Result<(), CommitError> {
        Ok(())
    }

    async fn rollback(self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Runs a future of which every step is ready.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits for something"),
    }
}

fn apply(rows: &[u64]) -> (Result<(), HandlerError>, Recorded) {
    let message = message("e-1", PAID);
    let (operation, change) = points_award(columns(&["user_id"])).operation(&message).unwrap();
    let mut tx = Recorded { rows: rows.to_vec(), ran: Vec::new() };
    let result = ready(change.apply(&mut tx, &operation, &message));
    (result, tx)
}

#[test]
fn a_message_becomes_the_operation_it_asks_for() {
    let mut message = message("e-1", PAID);
    message.headers = vec![(AGGREGATE_VERSION_HEADER.into(), "3".into())];

    let (operation, _) = points_award(columns(&["user_id", "amount"])).operation(&message).unwrap();

    assert_eq!(operation.consumer, "points-award");
    assert_eq!(operation.key, "order:42:paid");
    assert_eq!(operation.event_id, Some(EventId::stored("e-1")));
    assert_eq!(operation.aggregate_version, Some(3));
    assert_eq!(operation.comparison.text(), "user_id=7, amount=100");
}

/// B40, Urigo/accounter-fullstack#4350: redelivery adds headers, re-wrapping a new id; it is the same operation.
#[test]
fn a_new_envelope_around_the_same_fact_is_the_same_operation() {
    for comparison in [columns(&["user_id", "amount"]), fingerprint_of_both()] {
        let consumer = points_award(comparison);
        let mut copy = message("e-2", PAID);
        copy.headers = vec![("traceparent".into(), "00-abc".into()), ("x-death".into(), "1".into())];
        copy.redelivered = true;

        let (first, _) = consumer.operation(&message("e-1", PAID)).unwrap();
        let (second, _) = consumer.operation(&copy).unwrap();

        assert_eq!(first.key, second.key);
        assert_eq!(first.comparison, second.comparison);
    }
}

/// B40: identity that is read from the envelope is refused at start, not discovered in production.
#[test]
fn headers_and_event_ids_cannot_be_identity() {
    let trace = Binding {
        source: BindingSource::Header("traceparent".into()),
        value_type: ValueType::String,
        required: true,
    };
    let bindings = Bindings::new(BTreeMap::from([("trace".to_owned(), trace)])).unwrap();

    let key = KeyTemplate::parse("x:{trace}").unwrap().check(&bindings);

    assert!(matches!(key, Err(InvalidKey::Header { .. })));
    assert!(matches!(columns(&["trace"]).check(&bindings), Err(InvalidComparison::Header { .. })));
    assert!(matches!(columns(&["event_id"]).check(&bindings), Err(InvalidComparison::EventId { .. })));
    assert!(KeyTemplate::parse("{event_type}:{event_id}").unwrap().check(&bindings).is_ok());
}

/// B47, hirethunk/verbs#53: MySQL's JSON type gives back other text than was written.
#[test]
fn key_order_spacing_and_repeated_keys_never_make_a_conflict() {
    let consumer = points_award(fingerprint_of_both());
    let written = r#"{"orderId": 42, "userId": 7, "amount": 1, "amount": 100.0}"#;
    let normalised = r#"{"amount":1e2,"userId":7,"orderId":42}"#;

    let (first, _) = consumer.operation(&message("e-1", written)).unwrap();
    let (second, _) = consumer.operation(&message("e-1", normalised)).unwrap();

    assert_eq!(first.comparison, second.comparison);
}

/// B48, serde-rs/json#1170, #604: two different numbers must never become the same float.
#[test]
fn different_numbers_are_a_conflict_however_close_they_are() {
    for (left, right) in [
        ("9007199254740992", "9007199254740993"),
        ("18446744073709551616", "18446744073709551617"),
        ("1.5777777777770001", "1.5777777777770002"),
        ("117.63331139400017", "117.63331139400018"),
        ("0.1", "0.10000000000000001"),
    ] {
        for comparison in [columns(&["amount"]), fingerprint_of_both()] {
            let consumer = points_award(comparison);
            let paid = |amount| message("e-1", &format!(r#"{{"orderId":42,"userId":7,"amount":{amount}}}"#));

            let (first, _) = consumer.operation(&paid(left)).unwrap();
            let (second, _) = consumer.operation(&paid(right)).unwrap();

            assert_ne!(first.comparison, second.comparison, "{left} and {right}");
        }
    }
}

#[test]
fn fields_outside_the_comparison_do_not_matter_and_fields_inside_do() {
    let consumer = points_award(fingerprint_of_both());
    let operation = |body: &str| consumer.operation(&message("e-1", body)).unwrap().0;

    let noted = operation(r#"{"orderId":42,"userId":7,"amount":100,"note":"again"}"#);
    let changed = operation(r#"{"orderId":42,"userId":7,"amount":200}"#);

    assert_eq!(operation(PAID).comparison, noted.comparison);
    assert_ne!(operation(PAID).comparison, changed.comparison);
    assert_eq!(operation(PAID).key, changed.key);
}

/// The digest is stored in people's databases: another spelling of it would make every repeat a conflict.
#[test]
fn the_fingerprint_is_the_sha_256_of_the_canonical_object() {
    let digest = fingerprint(vec![("b", Value::Text("x".into())), ("a", Value::Decimal("1.5".into()))]);

    // printf '{"a":1.5,"b":"x"}' | sha256sum
    assert_eq!(digest, "65fd242cae36459932b524820d2925d23153aa1a19e15f7b9c418cfecfe86674");
}

#[test]
fn messages_that_cannot_become_an_operation_are_refused_with_the_field() {
    let consumer = points_award(columns(&["user_id", "amount"]));
    for (body, reason) in [
        ("", "the payload is not valid JSON at byte 0: end of text"),
        ("{}", "amount is missing: payload field /amount is absent or null"),
        (
            r#"{"orderId":"42","userId":7,"amount":1}"#,
            "order_id has the wrong type: payload field /orderId is a string, not an integer",
        ),
        (
            r#"{"orderId":4.5,"userId":7,"amount":1}"#,
            "order_id has the wrong type: payload field /orderId is a fractional number, not an integer",
        ),
        (
            r#"{"orderId":[42],"userId":7,"amount":1}"#,
            "order_id has the wrong type: payload field /orderId is an array, not an integer",
        ),
    ] {
        let refusal = consumer.operation(&message("e-1", body)).unwrap_err();

        assert_eq!(refusal.to_string(), reason);
    }
}

#[test]
fn envelopes_that_cannot_be_trusted_are_refused() {
    let consumer = points_award(columns(&["user_id"]));
    let undecodable = Message { undecodable: Some("a table in a table".into()), ..message("e-1", PAID) };
    let long_id = message(&"e".repeat(256), PAID);
    let mut version = message("e-1", PAID);
    version.headers = vec![(AGGREGATE_VERSION_HEADER.into(), "three".into())];

    assert!(matches!(consumer.operation(&undecodable), Err(Refusal::Undecodable(_))));
    assert!(matches!(consumer.operation(&long_id), Err(Refusal::EventId(_))));
    assert_eq!(consumer.operation(&version).unwrap_err(), Refusal::AggregateVersion);
    assert_eq!(consumer.operation(&message("", PAID)).unwrap().0.event_id, None);
}

#[test]
fn statements_run_in_order_with_the_message_s_values() {
    let (result, tx) = apply(&[1, 1]);

    assert_eq!(result, Ok(()));
    assert_eq!(
        tx.ran,
        [
            (
                "UPDATE points_account SET points = points + ? WHERE user_id = ?".to_owned(),
                vec![Value::Decimal("100".into()), Value::Integer(7)]
            ),
            ("INSERT INTO note (event_id) VALUES (?)".to_owned(), vec![Value::Text("e-1".into())]),
        ]
    );
}

#[test]
fn a_wrong_row_count_refuses_the_operation_and_stops_before_the_next_statement() {
    for (rows, reason) in [
        (0, "statement 1 of points-award changed 0 rows, expected exactly 1"),
        (2, "statement 1 of points-award changed 2 rows, expected exactly 1"),
    ] {
        let (result, tx) = apply(&[rows, 1]);

        assert_eq!(result, Err(HandlerError::Refused(reason.into())));
        assert_eq!(tx.ran.len(), 1);
    }
}

/// Applies three operations in one transaction; what that came to, and which event each statement ran for.
fn apply_three(statements: usize, rows: &[u64]) -> (Result<(), EachFailed>, Vec<String>) {
    let consumer = running(&vec![(NOTE, ExpectRows::Exactly(1)); statements], columns(&["user_id"]));
    let messages = ["e-1", "e-2", "e-3"].map(|id| message(id, PAID));
    let read: Vec<_> = messages.iter().map(|message| consumer.operation(message).unwrap()).collect();
    let work: Vec<_> = messages
        .iter()
        .zip(&read)
        .map(|(message, (operation, handler))| Work { operation, message, handler })
        .collect();
    let mut tx = Recorded { rows: rows.to_vec(), ran: Vec::new() };
    let result = ready(DeclaredChange::apply_each(&mut tx, &work));
    (result, tx.ran.iter().map(|(_, values)| values[0].text()).collect())
}

#[test]
fn several_operations_run_their_statements_in_order() {
    assert_eq!(apply_three(1, &[1; 3]), (Ok(()), ["e-1", "e-2", "e-3"].map(str::to_owned).into()));

    let each_twice = ["e-1", "e-1", "e-2", "e-2", "e-3", "e-3"].map(str::to_owned);
    assert_eq!(apply_three(2, &[1; 6]), (Ok(()), each_twice.into()));
}

#[test]
fn of_several_operations_the_one_at_fault_is_named() {
    let refused = |statement| {
        let reason = format!("statement {statement} of points-award changed 0 rows, expected exactly 1");
        Err(EachFailed { at: Some(1), error: HandlerError::Refused(reason) })
    };
    let gone = HandlerError::Store(StoreError::Unavailable("gone".into()));

    assert_eq!(apply_three(1, &[1, 0, 1]).0, refused(1));
    assert_eq!(apply_three(2, &[1, 1, 1, 0]).0, refused(2));
    assert_eq!(apply_three(1, &[1, 1]).0, Err(EachFailed { at: Some(2), error: gone.clone() }));
    assert_eq!(apply_three(2, &[1, 1, 1]).0, Err(EachFailed { at: Some(1), error: gone }));
}

#[test]
fn a_store_failure_is_the_store_s_and_not_the_message_s() {
    let (result, _) = apply(&[1]);

    assert!(matches!(result, Err(HandlerError::Store(StoreError::Unavailable(_)))));
}

#[test]
fn a_consumer_whose_parts_do_not_fit_reports_all_of_them() {
    let key = KeyTemplate::parse("order:{ordr_id}").unwrap();
    let bindings =
        Bindings::new(BTreeMap::from([bound("order_id", "/orderId", ValueType::Integer)])).unwrap();

    let problems =
        DeclaredConsumer::new("x", key, bindings, columns(&["amount"]), Vec::new()).map(drop).unwrap_err();

    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 2);
    assert_eq!(texts[0], r#""order:{ordr_id}" uses unknown name "ordr_id": did you mean "order_id"?"#);
    assert!(texts[1].starts_with(r#""amount" is not bound: add bind.amount"#), "{}", texts[1]);
}

#[test]
fn comparisons_that_say_nothing_or_say_it_twice_are_refused() {
    let bindings = Bindings::new(BTreeMap::from([bound("a", "/a", ValueType::Integer)])).unwrap();

    assert_eq!(
        DeclaredComparison::Fingerprint(vec![]).check(&bindings),
        Err(InvalidComparison::EmptyFingerprint)
    );
    assert!(matches!(columns(&["a", "a"]).check(&bindings), Err(InvalidComparison::Repeated { .. })));
    assert_eq!(columns(&[]).check(&bindings), Ok(()));
}

/// A field that is added to the comparison later must not turn history into conflicts.
#[test]
fn earlier_versions_compare_what_they_compared_with_this_message_s_values() {
    let earlier = |version, comparison| EarlierDeclared { version, comparison };
    let consumer = points_award(columns(&["user_id", "amount"]))
        .with_history(3, vec![earlier(1, columns(&["user_id"])), earlier(2, fingerprint_of_both())])
        .unwrap();

    let (operation, _) = consumer.operation(&message("e-1", PAID)).unwrap();

    assert_eq!((operation.comparison_version, consumer.comparison_version()), (3, 3));
    assert_eq!(consumer.earlier().iter().map(|earlier| earlier.version).collect::<Vec<_>>(), [1, 2]);
    let texts: Vec<_> =
        operation.earlier.iter().map(|earlier| (earlier.version, earlier.comparison.text())).collect();
    assert_eq!(texts[0], (1, "user_id=7".to_owned()));
    assert!(texts[1].0 == 2 && texts[1].1.starts_with("fingerprint="), "{texts:?}");
    assert_eq!(
        consumer.compared_columns(),
        [("user_id", ValueType::Integer), ("amount", ValueType::Decimal)]
    );
    assert!(consumer.uses_fingerprint());
}

/// Commands and checks of the schema read a consumer back.
#[test]
fn a_consumer_tells_what_it_was_made_of() {
    let consumer = points_award(columns(&["user_id"]));

    assert_eq!(consumer.name(), "points-award");
    assert_eq!(consumer.key().as_str(), "order:{order_id}:paid");
    assert_eq!(consumer.bindings().get("amount").map(|bound| bound.value_type), Some(ValueType::Decimal));
    assert_eq!(consumer.bindings().get("event_id"), None, "nobody binds what is built in");
    assert_eq!(*consumer.comparison(), columns(&["user_id"]));
    assert_eq!((consumer.comparison_version(), consumer.earlier().len()), (1, 0));
    assert!(!consumer.uses_fingerprint());
    assert!(consumer.guard().is_none());
    assert_eq!(consumer.statements().len(), 2);
    assert_eq!(consumer.statements()[1].sql(), "INSERT INTO note (event_id) VALUES (?)");
    assert!(points_award(fingerprint_of_both()).uses_fingerprint());
}

#[test]
fn versions_that_cannot_be_told_apart_are_refused() {
    let earlier = |version, comparison| EarlierDeclared { version, comparison };
    let history = |current, entries: Vec<EarlierDeclared>| {
        points_award(columns(&[])).with_history(current, entries).map(drop)
    };

    assert_eq!(history(2, vec![earlier(1, columns(&[]))]), Ok(()));
    assert_eq!(history(2, vec![earlier(0, columns(&[]))]), Err((0, InvalidHistory::Zero)));
    assert_eq!(
        history(2, vec![earlier(1, columns(&[])), earlier(2, columns(&[]))]),
        Err((1, InvalidHistory::NotEarlier { version: 2, current: 2 }))
    );
    assert_eq!(
        history(3, vec![earlier(1, columns(&[])), earlier(1, columns(&["amount"]))]),
        Err((1, InvalidHistory::Repeated(1)))
    );
    assert!(matches!(
        history(2, vec![earlier(1, columns(&["currency"]))]),
        Err((0, InvalidHistory::Comparison(InvalidComparison::UnknownName { .. })))
    ));
}

#[test]
fn a_guarded_operation_carries_its_guard_and_a_message_without_a_version_is_refused() {
    let guard = DeclaredGuard {
        aggregate: KeyTemplate::parse("order:{order_id}").unwrap(),
        rule: DeclaredRule::ApplyIfNewer(VersionSource::Header),
    };
    let consumer = points_award(columns(&[])).with_guard(guard).unwrap();
    let mut versioned = message("e-1", PAID);
    versioned.headers = vec![(AGGREGATE_VERSION_HEADER.into(), "3".into())];

    let (operation, _) = consumer.operation(&versioned).unwrap();

    let guard = operation.guard.unwrap();
    assert_eq!((guard.aggregate.as_str(), guard.step), ("order:42", Step::ApplyIfNewer { version: 3 }));
    assert_eq!(
        consumer.operation(&message("e-1", PAID)).unwrap_err(),
        Refusal::Guard(GuardRefusal::NoVersion)
    );
}
