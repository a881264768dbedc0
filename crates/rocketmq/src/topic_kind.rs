//! What kinds of messages a topic takes.

use std::fmt;

/// The `message.type` of a topic. The proxy refuses messages of another kind; the plain remoting path does not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TopicKind {
    /// Messages without order, delay or transaction. Topics without the attribute are of this kind.
    Normal,
    /// Messages of one group stay in their order.
    Fifo,
    /// Messages that become visible at a time.
    Delay,
    /// Half messages that are committed or rolled back.
    Transaction,
    /// All kinds. The proxy asks no producer about half messages of such a topic.
    Mixed,
    /// The proxy could not read the topic's configuration.
    Unspecified,
    /// A kind that this crate does not know.
    Other(String),
}

impl TopicKind {
    /// The kind of that name; names are upper case on the wire and compared exactly.
    pub fn new(name: &str) -> Self {
        match name {
            "NORMAL" => Self::Normal,
            "FIFO" => Self::Fifo,
            "DELAY" => Self::Delay,
            "TRANSACTION" => Self::Transaction,
            "MIXED" => Self::Mixed,
            "UNSPECIFIED" => Self::Unspecified,
            other => Self::Other(other.to_owned()),
        }
    }

    /// The name on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Normal => "NORMAL",
            Self::Fifo => "FIFO",
            Self::Delay => "DELAY",
            Self::Transaction => "TRANSACTION",
            Self::Mixed => "MIXED",
            Self::Unspecified => "UNSPECIFIED",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for TopicKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
