//! What exchanges and queues must be: made by `apply`, compared by `check`, both over AMQP alone.
//!
//! AMQP shows whether a queue or exchange exists and whether it equals a declaration. It shows no bindings, no
//! policies and no cluster members; the findings say so instead of guessing.

mod broker;
mod delivery_limit;
mod rules;

use consign_amqp::{ConnectOptions, ExchangeDeclaration, FieldTable, FieldValue, QueueDeclaration};
use consign_core::finding::{Finding, Severity};

use broker::{Broker, Compared};
use rules::Server;

/// Exchanges, and queues bound to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The exchanges.
    pub exchanges: Vec<Exchange>,
    /// The queues.
    pub queues: Vec<Queue>,
}

/// One exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Its name; the default exchange exists always and is not listed.
    pub name: String,
    /// Its type.
    pub kind: ExchangeKind,
    /// Whether it survives a restart of the broker.
    pub durable: bool,
}

/// The type of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeKind {
    /// Routes by equal keys.
    Direct,
    /// Routes by patterns of words.
    Topic,
    /// Routes everything to every queue.
    Fanout,
    /// Routes by headers.
    Headers,
    /// A type that a plugin brings, such as `x-consistent-hash`.
    Other(String),
}

impl ExchangeKind {
    /// The type's name on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Direct => "direct",
            Self::Topic => "topic",
            Self::Fanout => "fanout",
            Self::Headers => "headers",
            Self::Other(name) => name,
        }
    }
}

impl Exchange {
    /// A durable exchange.
    pub fn durable(name: impl Into<String>, kind: ExchangeKind) -> Self {
        Self { name: name.into(), kind, durable: true }
    }

    fn declaration(&self) -> ExchangeDeclaration {
        ExchangeDeclaration { durable: self.durable, ..ExchangeDeclaration::durable(self.kind.as_str()) }
    }
}

/// The type of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// On one node.
    Classic,
    /// Replicated by consensus.
    Quorum,
    /// A replicated log.
    Stream,
}

impl QueueKind {
    /// The type's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Quorum => "quorum",
            Self::Stream => "stream",
        }
    }
}

/// What happens to messages beyond a queue's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The oldest are dropped, confirmed or not: the broker's default.
    DropHead,
    /// New ones are refused with a nack.
    RejectPublish,
    /// New ones are refused with a nack and dead-lettered; classic queues only.
    RejectPublishDlx,
}

/// How messages are moved to the dead-letter exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadLetterStrategy {
    /// Without confirms: a message can vanish on its way.
    AtMostOnce,
    /// With confirms; quorum queues with overflow reject-publish only.
    AtLeastOnce,
}

/// A binding of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The exchange.
    pub exchange: String,
    /// The routing key, or a pattern for a topic exchange.
    pub key: String,
}

/// One queue. Never exclusive: its messages outlive connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: QueueKind,
    /// Whether it survives a restart of the broker.
    pub durable: bool,
    /// Whether it goes with its last consumer.
    pub auto_delete: bool,
    /// Its bindings.
    pub bindings: Vec<Binding>,
    /// Where rejected, expired and too often returned messages go; empty text is the default exchange.
    pub dead_letter_exchange: Option<String>,
    /// The routing key they go under; theirs when absent.
    pub dead_letter_key: Option<String>,
    /// How they get there; the broker's default is [`DeadLetterStrategy::AtMostOnce`].
    pub dead_letter_strategy: Option<DeadLetterStrategy>,
    /// After how many returns a quorum queue gives a message up; -1 is never.
    pub delivery_limit: Option<i64>,
    /// How many ready messages it holds at most.
    pub max_length: Option<u64>,
    /// How many bytes of ready messages it holds at most.
    pub max_length_bytes: Option<u64>,
    /// What happens beyond that.
    pub overflow: Option<Overflow>,
    /// The storage version of a classic queue, 1 or 2.
    pub classic_version: Option<u8>,
    /// How often consign's consumers of it try a message before they put it aside; `None` when it has no such
    /// consumer. Not declared: the check compares it with the delivery limit.
    pub attempts_max: Option<u32>,
}

impl Queue {
    /// A durable queue of this type with the broker's defaults and no bindings.
    pub fn durable(name: impl Into<String>, kind: QueueKind) -> Self {
        Self {
            name: name.into(),
            kind,
            durable: true,
            auto_delete: false,
            bindings: Vec::new(),
            dead_letter_exchange: None,
            dead_letter_key: None,
            dead_letter_strategy: None,
            delivery_limit: None,
            max_length: None,
            max_length_bytes: None,
            overflow: None,
            classic_version: None,
            attempts_max: None,
        }
    }

    /// The same queue with a further binding.
    #[must_use]
    pub fn bound_to(mut self, exchange: impl Into<String>, key: impl Into<String>) -> Self {
        self.bindings.push(Binding { exchange: exchange.into(), key: key.into() });
        self
    }

    fn declaration(&self) -> QueueDeclaration {
        let mut arguments = FieldTable::new().with("x-queue-type", self.kind.as_str());
        let mut put = |name: &str, value: Option<FieldValue>| {
            if let Some(value) = value {
                arguments.insert(name, value);
            }
        };
        let number = |value: u64| FieldValue::Int(i64::try_from(value).unwrap_or(i64::MAX));
        put("x-dead-letter-exchange", self.dead_letter_exchange.clone().map(FieldValue::Text));
        put("x-dead-letter-routing-key", self.dead_letter_key.clone().map(FieldValue::Text));
        put(
            "x-dead-letter-strategy",
            self.dead_letter_strategy.map(|strategy| {
                FieldValue::from(match strategy {
                    DeadLetterStrategy::AtMostOnce => "at-most-once",
                    DeadLetterStrategy::AtLeastOnce => "at-least-once",
                })
            }),
        );
        put("x-delivery-limit", self.delivery_limit.map(FieldValue::Int));
        put("x-max-length", self.max_length.map(number));
        put("x-max-length-bytes", self.max_length_bytes.map(number));
        put(
            "x-overflow",
            self.overflow.map(|overflow| {
                FieldValue::from(match overflow {
                    Overflow::DropHead => "drop-head",
                    Overflow::RejectPublish => "reject-publish",
                    Overflow::RejectPublishDlx => "reject-publish-dlx",
                })
            }),
        );
        put("x-queue-version", self.classic_version.map(|version| FieldValue::Int(i64::from(version))));
        QueueDeclaration { durable: self.durable, exclusive: false, auto_delete: self.auto_delete, arguments }
    }
}

/// Why a topology could not be applied. What was declared before stays declared; applying again is safe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// The broker cannot be reached, or the connection broke.
    #[error("the broker is unavailable: {0}")]
    Unavailable(String),
    /// Something of that name exists and is not what the topology says.
    #[error(
        "{subject} exists with another {argument}: the topology says {wanted}, the broker has {found}; delete it \
         when it is empty, or change the topology"
    )]
    Differs {
        /// `queue "points"` or `exchange "orders"`.
        subject: String,
        /// The argument that differs.
        argument: String,
        /// What the topology says.
        wanted: String,
        /// What the broker has.
        found: String,
    },
    /// The broker refused a declaration or a binding.
    #[error("the broker refused {subject}: {code} {text}")]
    Refused {
        /// What was to be made.
        subject: String,
        /// The AMQP reply code.
        code: u16,
        /// The broker's words.
        text: String,
    },
}

impl Topology {
    /// The same topology, with a consumer of `queue` that tries a message up to `attempts_max` times. The highest of
    /// several counts; a queue that the topology does not have is left out.
    #[must_use]
    pub fn consumed(mut self, queue: &str, attempts_max: u32) -> Self {
        for queue in self.queues.iter_mut().filter(|declared| declared.name == queue) {
            queue.attempts_max = queue.attempts_max.max(Some(attempts_max));
        }
        self
    }

    /// Declares everything. Idempotent: what exists as it must be is left alone, and nothing is ever deleted.
    ///
    /// # Errors
    /// The broker is unavailable, refuses something, or has something else under a name.
    pub async fn apply(&self, connect: &ConnectOptions) -> Result<(), TopologyError> {
        let mut broker = Broker::open(connect).await?;
        for exchange in &self.exchanges {
            broker.declare_exchange(&exchange.name, &exchange.declaration()).await?;
        }
        for queue in &self.queues {
            broker.declare_queue(&queue.name, &queue.declaration()).await?;
            for binding in &queue.bindings {
                broker.bind(&queue.name, &binding.exchange, &binding.key).await?;
            }
        }
        Ok(())
    }

    /// Compares with the broker and judges the topology by the broker's version: durability, replication, what the
    /// delivery limit of every quorum queue is and where messages go beyond it, overflow. Changes nothing.
    pub async fn check(&self, connect: &ConnectOptions) -> Vec<Finding> {
        let mut broker = match Broker::open(connect).await {
            Ok(broker) => broker,
            Err(error) => return vec![unreachable_broker(connect, &error)],
        };
        let server = Server::new(broker.server());
        let mut findings = rules::judge(self, &server);
        if let Err(error) = self.compare(&mut broker, &mut findings).await {
            findings.push(unreachable_broker(connect, &error));
        }
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        findings
    }

    async fn compare(&self, broker: &mut Broker, findings: &mut Vec<Finding>) -> Result<(), TopologyError> {
        for exchange in &self.exchanges {
            let compared = broker.compare_exchange(&exchange.name, &exchange.declaration()).await?;
            findings.push(compared_finding("exchange", &exchange.name, compared));
        }
        for queue in &self.queues {
            let compared = broker.compare_queue(&queue.name, &queue.declaration()).await?;
            findings.push(compared_finding("queue", &queue.name, compared));
        }
        for name in self.exchanges_elsewhere() {
            if !broker.exchange_exists(name).await? {
                findings.push(Finding::error(
                    "exchange-missing",
                    format!("exchange {name:?}"),
                    "a queue of the topology names it, and the broker does not have it",
                    "add it to the topology's exchanges and run consign topology apply",
                ));
            }
        }
        if self.queues.iter().any(|queue| !queue.bindings.is_empty()) {
            findings.push(Finding::fine(
                "bindings-not-visible",
                "bindings",
                "AMQP shows no bindings: consign topology apply makes them again, and an unbound route is reported \
                 as unroutable by the first publish",
            ));
        }
        Ok(())
    }

    /// Exchanges that queues name and that are not in the list: bound to, or dead-lettered to.
    fn exchanges_elsewhere(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .queues
            .iter()
            .flat_map(|queue| {
                let bound = queue.bindings.iter().map(|binding| binding.exchange.as_str());
                bound.chain(queue.dead_letter_exchange.as_deref())
            })
            .filter(|name| !name.is_empty() && self.exchanges.iter().all(|exchange| exchange.name != *name))
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

fn unreachable_broker(connect: &ConnectOptions, error: &TopologyError) -> Finding {
    Finding::error(
        "broker-unreachable",
        connect.to_string(),
        error.to_string(),
        "start the broker, or correct its address and credentials",
    )
}

fn compared_finding(what: &str, name: &str, compared: Compared) -> Finding {
    let subject = format!("{what} {name:?}");
    let (missing, differs, same) = match what {
        "queue" => ("queue-missing", "queue-differs", "queue-as-configured"),
        _ => ("exchange-missing", "exchange-differs", "exchange-as-configured"),
    };
    match compared {
        Compared::Same => {
            Finding::fine(same, subject, "exists as configured; policies are not visible over AMQP")
        }
        Compared::Missing => {
            Finding::error(missing, subject, "the broker does not have it", "run consign topology apply")
        }
        Compared::Differs { argument, wanted, found } => Finding::error(
            differs,
            subject,
            format!("{argument} is {found} on the broker and {wanted} in the topology"),
            "delete it when it is empty and run consign topology apply, or change the topology",
        ),
        Compared::Refused { code, text } => Finding {
            severity: Severity::Warning,
            ..Finding::error(
                "not-comparable",
                subject,
                format!("the broker refused the comparison: {code} {text}"),
                "grant the configure permission on it, or run the check as another user",
            )
        },
    }
}
