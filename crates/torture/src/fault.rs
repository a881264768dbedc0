//! The faults, each under its name.
//!
//! - [`process`]: relays and consumers die, at named points and anywhere, freeze and drain
//! - [`server`]: MySQL and RabbitMQ die, restart, freeze, refuse
//! - [`network`]: what happens between them

mod network;
mod process;
mod server;

use anyhow::Result;
use serde::Serialize;

use crate::fleet::Role;
use crate::servers::{MYSQL, RABBITMQ};
use crate::stage::Stage;
use network::Trouble;

/// A fault that can be done to a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL for one process.
    Kill(Role),
    /// SIGKILL for processes drawn by lot, one soon after the other.
    Storm,
    /// A process ends at a failpoint.
    Point(&'static str),
    /// SIGTERM; the process must drain and end with success.
    Terminate(Role),
    /// SIGSTOP for longer than a lease, then SIGCONT.
    Freeze(Role),
    /// SIGKILL for a server, and a new start.
    KillServer(&'static str),
    /// A clean stop of a server, and a new start.
    RestartServer(&'static str),
    /// SIGSTOP for every process of a server, then SIGCONT.
    FreezeServer(&'static str),
    /// The database ends every connection but its own.
    KillConnections,
    /// The database refuses every write.
    ReadOnly,
    /// Somebody else holds the locks of rows in flight.
    LockedRows,
    /// The broker raises its memory alarm.
    MemoryAlarm,
    /// The broker raises its disk alarm.
    DiskAlarm,
    /// The broker closes every connection.
    CloseConnections,
    /// SIGKILL for the node that leads the queue, and a new start.
    KillLeader,
    /// SIGSTOP for that node, then SIGCONT.
    FreezeLeader,
    /// No byte is free on the database's disk.
    FillDisk,
    /// Something between processes and a server.
    Network(Trouble),
}

/// The servers that faults need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// One database server, one broker.
    Usual,
    /// A broker of three nodes.
    Cluster,
    /// A database on a small file system of its own.
    SmallDisk,
}

impl Place {
    pub const ALL: [Self; 3] = [Self::Usual, Self::Cluster, Self::SmallDisk];
}

/// What is to be known of a fault.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// For `--only`, and in reports.
    pub name: &'static str,
    pub fault: Fault,
}

/// The faults of the short version: every failpoint, and the death of each process and server.
pub fn short() -> Vec<Entry> {
    let is_short =
        |entry: &&Entry| matches!(entry.fault, Fault::Point(_) | Fault::Kill(_) | Fault::KillServer(_));
    FAULTS.iter().filter(is_short).copied().collect()
}

const fn entry(name: &'static str, fault: Fault) -> Entry {
    Entry { name, fault }
}

const fn point(name: &'static str) -> Entry {
    Entry { name, fault: Fault::Point(name) }
}

/// Every fault there is.
pub const FAULTS: &[Entry] = &[
    point("claim.before_begin"),
    point("claim.after_select"),
    point("claim.before_commit"),
    point("claim.after_commit"),
    point("publish.before_first_byte"),
    point("publish.before_confirm"),
    point("publish.after_outcome"),
    point("settle.before_update"),
    point("settle.after_update_before_commit"),
    point("settle.after_commit"),
    point("sweep.mid_batch"),
    point("sweep.after_commit"),
    point("consume.before_commit"),
    point("consume.after_commit"),
    point("consume.after_ack"),
    entry("kill-relay", Fault::Kill(Role::Relay)),
    entry("kill-consumer", Fault::Kill(Role::Consumer)),
    entry("storm", Fault::Storm),
    entry("terminate-relay", Fault::Terminate(Role::Relay)),
    entry("terminate-consumer", Fault::Terminate(Role::Consumer)),
    entry("freeze-relay", Fault::Freeze(Role::Relay)),
    entry("freeze-consumer", Fault::Freeze(Role::Consumer)),
    entry("kill-mysql", Fault::KillServer(MYSQL)),
    entry("restart-mysql", Fault::RestartServer(MYSQL)),
    entry("freeze-mysql", Fault::FreezeServer(MYSQL)),
    entry("kill-connections", Fault::KillConnections),
    entry("read-only", Fault::ReadOnly),
    entry("locked-rows", Fault::LockedRows),
    entry("kill-rabbitmq", Fault::KillServer(RABBITMQ)),
    entry("restart-rabbitmq", Fault::RestartServer(RABBITMQ)),
    entry("freeze-rabbitmq", Fault::FreezeServer(RABBITMQ)),
    entry("memory-alarm", Fault::MemoryAlarm),
    entry("disk-alarm", Fault::DiskAlarm),
    entry("close-connections", Fault::CloseConnections),
    entry("kill-leader", Fault::KillLeader),
    entry("freeze-leader", Fault::FreezeLeader),
    entry("disk-full", Fault::FillDisk),
    entry("store-reset", Fault::Network(Trouble::StoreReset)),
    entry("store-half-open", Fault::Network(Trouble::StoreHalfOpen)),
    entry("store-answers-lost", Fault::Network(Trouble::StoreAnswersLost)),
    entry("store-delay", Fault::Network(Trouble::StoreDelay)),
    entry("broker-reset", Fault::Network(Trouble::BrokerReset)),
    entry("broker-cut-in-frame", Fault::Network(Trouble::BrokerCutInFrame)),
    entry("broker-half-open", Fault::Network(Trouble::BrokerHalfOpen)),
    entry("confirms-lost", Fault::Network(Trouble::ConfirmsLost)),
    entry("confirms-late", Fault::Network(Trouble::ConfirmsLate)),
    entry("broker-slow", Fault::Network(Trouble::BrokerSlow)),
    entry("acks-lost", Fault::Network(Trouble::AcksLost)),
    entry("inbox-answers-lost", Fault::Network(Trouble::InboxAnswersLost)),
];

impl Fault {
    /// Where it can be done.
    pub fn place(self) -> Place {
        match self {
            Self::KillLeader | Self::FreezeLeader => Place::Cluster,
            Self::FillDisk => Place::SmallDisk,
            _ => Place::Usual,
        }
    }

    /// Does it and heals it; what was committed meanwhile need not have recovered.
    pub async fn strike(self, stage: &mut Stage) -> Result<()> {
        match self {
            Self::Kill(role) => process::kill(stage, role),
            Self::Storm => process::storm(stage).await,
            Self::Point(name) => process::crash(stage, name).await,
            Self::Terminate(role) => process::terminate(stage, role).await,
            Self::Freeze(role) => process::freeze(stage, role).await,
            Self::KillServer(name) => server::kill(stage, name).await,
            Self::RestartServer(name) => server::restart(stage, name).await,
            Self::FreezeServer(name) => server::freeze(stage, name).await,
            Self::KillConnections => server::kill_connections(stage).await,
            Self::ReadOnly => server::read_only(stage).await,
            Self::LockedRows => server::locked_rows(stage).await,
            Self::MemoryAlarm => server::memory_alarm(stage).await,
            Self::DiskAlarm => server::disk_alarm(stage).await,
            Self::CloseConnections => server::close_connections(stage).await,
            Self::KillLeader => server::kill_leader(stage).await,
            Self::FreezeLeader => server::freeze_leader(stage).await,
            Self::FillDisk => server::fill_disk(stage).await,
            Self::Network(trouble) => network::strike(stage, trouble).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_failpoint_of_the_program_is_a_fault() {
        let faults: BTreeSet<&str> = FAULTS
            .iter()
            .filter_map(|entry| if let Fault::Point(name) = entry.fault { Some(name) } else { None })
            .collect();

        assert_eq!(faults, consign_failpoint::POINTS.into_iter().collect());
    }

    #[test]
    fn no_two_faults_share_a_name() {
        let names: BTreeSet<&str> = FAULTS.iter().map(|entry| entry.name).collect();

        assert_eq!(names.len(), FAULTS.len());
    }
}
