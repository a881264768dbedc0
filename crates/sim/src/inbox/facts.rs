//! The points story as the simulator plays it: what messages say, and the declared consumer that reads them.

use std::collections::BTreeMap;

use bytes::Bytes;
use consign_core::declared::{
    Binding, BindingSource, Bindings, ComparedBinding, DeclaredComparison, DeclaredConsumer, DeclaredGuard,
    DeclaredRule, ExpectRows, KeyTemplate, Statement, VersionSource,
};
use consign_core::delivery::Message;
use consign_core::value::ValueType;

/// The consumer's name.
pub const CONSUMER: &str = "points-award";
/// Adds points to an account, which must exist.
pub const AWARD: &str = "UPDATE points_account SET points = points + ? WHERE user_id = ?";
/// Writes an entry down; nothing about the table keeps a second one out.
pub const ENTER: &str =
    "INSERT INTO points_entry (order_id, user_id, amount, stream, version) VALUES (?, ?, ?, ?, ?)";
/// The largest amount that its column holds.
pub const AMOUNT_MAX: i64 = 1_000_000;

/// What a message says, and what the simulator knows about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The order that was paid: one operation each.
    pub order: i64,
    /// Whose points.
    pub user: i64,
    /// How many.
    pub amount: i64,
    /// What the order belongs to.
    pub stream: i64,
    /// Its place there, from 1.
    pub version: i64,
    /// Properties or headers that nobody can decode.
    pub undecodable: bool,
    /// The payload.
    pub body: Bytes,
}

/// What keeps a fact's stream in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Nothing.
    Unguarded,
    /// Newer versions overwrite older ones.
    ApplyIfNewer,
    /// Each version once, in order.
    Sequential,
}

impl Fact {
    /// The same with its payload, and so much padding in it.
    #[must_use]
    pub fn with_body(mut self, padding: usize) -> Self {
        let Self { order, user, amount, stream, version, .. } = self;
        self.body = Bytes::from(format!(
            r#"{{"order":{order},"user":{user},"amount":{amount},"stream":{stream},"version":{version},"padding":"{:padding$}"}}"#,
            ""
        ));
        self
    }

    /// What an event of the outbox says, the `version`-th of its aggregate.
    pub fn of_the_outbox(number: usize, aggregate: Option<usize>, version: i64, users: i64) -> Self {
        /// Streams of events without an aggregate begin here.
        const ALONE: i64 = 1_000;
        let order = i64::try_from(number).unwrap_or(i64::MAX);
        let stream = aggregate.and_then(|aggregate| i64::try_from(aggregate).ok()).unwrap_or(ALONE + order);
        Self {
            order,
            user: 1 + order % users,
            amount: 1 + order * 37 % 500,
            stream,
            version,
            undecodable: false,
            body: Bytes::new(),
        }
    }

    /// The message that carries it; its id is the fact's number.
    pub fn message(&self, number: usize) -> Message {
        Message {
            id: Some(number.to_string()),
            message_type: Some("OrderPaid".into()),
            body: self.body.clone(),
            delivery_count: 1,
            source: CONSUMER.into(),
            undecodable: self.undecodable.then(|| "header 3 has an unknown type".into()),
            ..Message::default()
        }
    }

    /// True when both ask for the same thing.
    pub fn same_as(&self, other: &Self) -> bool {
        (self.order, self.user, self.amount) == (other.order, other.user, other.amount)
    }
}

/// The declared consumer; with `accounts` it adds to accounts before it writes its entry.
///
/// # Panics
/// Never: every part is checked here.
pub fn consumer(rule: Rule, accounts: bool, fingerprint: bool) -> DeclaredConsumer {
    let integer = |name: &str| {
        let source = BindingSource::Pointer(format!("/{name}"));
        (name.to_owned(), Binding { source, value_type: ValueType::Integer, required: true })
    };
    let names = ["order", "user", "amount", "stream", "version"];
    let bindings = Bindings::new(BTreeMap::from(names.map(integer))).expect("the bindings are checked");
    let statement = |sql: &str| {
        Statement::parse(sql, bindings.known_names(), ExpectRows::Exactly(1)).expect("the SQL is checked")
    };
    let award = "UPDATE points_account SET points = points + :amount WHERE user_id = :user";
    let enter = "INSERT INTO points_entry (order_id, user_id, amount, stream, version) \
                 VALUES (:order, :user, :amount, :stream, :version)";
    let mut statements = vec![statement(enter)];
    if accounts {
        statements.insert(0, statement(award));
    }
    let compared =
        |column: &str, binding: &str| ComparedBinding { column: column.into(), binding: binding.into() };
    let comparison = if fingerprint {
        DeclaredComparison::Fingerprint(vec!["user".into(), "amount".into()])
    } else {
        DeclaredComparison::Columns(vec![compared("user_id", "user"), compared("amount", "amount")])
    };
    let template = |text: &str| KeyTemplate::parse(text).expect("the template is checked");
    let key = template("order:{order}:paid");
    let consumer = DeclaredConsumer::new(CONSUMER, key, bindings, comparison, statements)
        .expect("the parts fit together");
    let version = VersionSource::Binding("version".into());
    let rule = match rule {
        Rule::Unguarded => return consumer,
        Rule::ApplyIfNewer => DeclaredRule::ApplyIfNewer(version),
        Rule::Sequential => DeclaredRule::Sequential { version, first: 1 },
    };
    let guard = DeclaredGuard { aggregate: template("stream:{stream}"), rule };
    consumer.with_guard(guard).expect("the guard fits")
}
