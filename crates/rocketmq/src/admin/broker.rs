//! Brokers, as the name server lists them, and what they are configured to do.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

/// The id of the master among the brokers of one name.
pub(super) const MASTER: &str = "0";

/// One broker process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Broker {
    /// The cluster it belongs to.
    pub cluster: String,
    /// The name it shares with its replicas.
    pub name: String,
    /// Its number among them; 0 is the master.
    pub id: u64,
    /// Host and port of its remoting listener.
    pub address: String,
}

/// What the name server says of the cluster.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterInfo {
    #[serde(default)]
    broker_addr_table: BTreeMap<String, BrokerData>,
}

/// One name with the addresses of its master and replicas.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BrokerData {
    #[serde(default)]
    cluster: String,
    broker_name: String,
    #[serde(default)]
    broker_addrs: BTreeMap<String, String>,
}

impl ClusterInfo {
    /// All brokers, sorted.
    pub(super) fn brokers(self) -> Vec<Broker> {
        let mut brokers: Vec<Broker> =
            self.broker_addr_table.into_values().flat_map(BrokerData::brokers).collect();
        brokers.sort_unstable();
        brokers
    }
}

impl BrokerData {
    pub(super) fn master(&self) -> Option<&str> {
        self.broker_addrs.get(MASTER).map(String::as_str)
    }

    pub(super) fn name(&self) -> &str {
        &self.broker_name
    }

    fn brokers(self) -> impl Iterator<Item = Broker> {
        let Self { cluster, broker_name, broker_addrs } = self;
        broker_addrs.into_iter().filter_map(move |(id, address)| {
            let id = id.parse().ok()?;
            Some(Broker { cluster: cluster.clone(), name: broker_name.clone(), id, address })
        })
    }
}

/// The settings of a broker, under the names of its configuration file. Values may hold secrets: never print all.
#[derive(Clone, PartialEq, Eq)]
pub struct BrokerSettings {
    values: BTreeMap<String, String>,
}

impl std::fmt::Debug for BrokerSettings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.values.keys()).finish()
    }
}

impl BrokerSettings {
    /// The settings in lines of `name=value`.
    pub fn from_lines(text: &str) -> Self {
        let pair = |line: &str| {
            let (name, value) = line.split_once('=')?;
            Some((name.trim().to_owned(), value.trim().to_owned()))
        };
        Self { values: text.lines().filter_map(pair).collect() }
    }

    /// A setting as text, for instance `flushDiskType`; `None` when this broker does not have it.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// A whole number; `None` also when the value is none.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// `true` or `false`; `None` also when the value is neither.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.text(name)?.parse().ok()
    }

    /// A number of milliseconds.
    pub fn milliseconds(&self, name: &str) -> Option<Duration> {
        self.number(name).map(Duration::from_millis)
    }
}

/// A release of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerVersion {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number.
    pub patch: u32,
}

impl ServerVersion {
    /// Reads `V5_3_3` and `V5_3_4_SNAPSHOT`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.strip_prefix('V')?.splitn(4, '_').map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self { major: next()?, minor: next()?, patch: next()? })
    }
}

impl std::fmt::Display for ServerVersion {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// What a broker tells of itself as it runs; `None` where it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BrokerRuntime {
    /// Its release.
    pub version: Option<ServerVersion>,
    /// How much of the disk of its commit log is used, from 0 to 1; with several disks, of the emptiest.
    pub disk_used: Option<f64>,
}

/// The same, as it comes.
#[derive(Deserialize)]
pub(super) struct RuntimeTable {
    #[serde(default)]
    table: BTreeMap<String, String>,
}

impl RuntimeTable {
    pub(super) fn runtime(&self) -> BrokerRuntime {
        let told = |name: &str| self.table.get(name);
        BrokerRuntime {
            version: told("brokerVersionDesc").and_then(|text| ServerVersion::parse(text)),
            // A disk that the broker cannot look at is told as -1.
            disk_used: told("commitLogDiskRatio")
                .and_then(|text| text.parse().ok())
                .filter(|used| (0.0..=1.0).contains(used)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_with_and_without_a_snapshot_mark() {
        let version = |major, minor, patch| Some(ServerVersion { major, minor, patch });

        assert_eq!(ServerVersion::parse("V5_3_3"), version(5, 3, 3));
        assert_eq!(ServerVersion::parse("V5_10_0_SNAPSHOT"), version(5, 10, 0));
        assert!(version(5, 10, 0) > version(5, 3, 3));
        assert_eq!(ServerVersion::parse("5.3.3"), None);
        assert_eq!(ServerVersion::parse("V5_3"), None);
    }

    #[test]
    fn a_disk_that_the_broker_cannot_look_at_is_not_told_as_empty() {
        let used = |ratio: &str| {
            let table = [("commitLogDiskRatio".to_owned(), ratio.to_owned())].into();
            RuntimeTable { table }.runtime().disk_used
        };

        assert_eq!(used("0.94"), Some(0.94));
        for nothing in ["-1.0", "NaN", "1.5", "full", ""] {
            assert_eq!(used(nothing), None, "{nothing}");
        }
        assert_eq!(RuntimeTable { table: BTreeMap::new() }.runtime(), BrokerRuntime::default());
    }

    #[test]
    fn settings_are_read_by_name_and_their_values_are_not_printed() {
        let settings = BrokerSettings::from_lines(
            "flushDiskType=ASYNC_FLUSH\ntransactionTimeOut=6000\nautoCreateTopicEnable=true\n\
             innerClientAuthenticationCredentials={\"secretKey\":\"a=b\"}\nnonsense\n",
        );

        assert_eq!(settings.text("flushDiskType"), Some("ASYNC_FLUSH"));
        assert_eq!(settings.milliseconds("transactionTimeOut"), Some(Duration::from_secs(6)));
        assert_eq!(settings.flag("autoCreateTopicEnable"), Some(true));
        assert_eq!(settings.number("flushDiskType"), None);
        assert_eq!(settings.text("nonsense"), None);
        assert!(!format!("{settings:?}").contains("a=b"));
    }
}
