//! The processes under torture: relays and consumers of the real program.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

const LOOK_EVERY: Duration = Duration::from_millis(20);
/// SIGABRT: how a process ends at a failpoint.
const ABORT: i32 = 6;

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Relay,
    Consumer,
}

impl Role {
    fn command(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Consumer => "consume",
        }
    }
}

/// Where the program and the configs are.
#[derive(Clone, Debug)]
pub struct Paths {
    pub program: PathBuf,
    pub relay_config: PathBuf,
    pub consumer_config: PathBuf,
    /// For logs.
    pub folder: PathBuf,
}

/// All processes; killed when dropped.
pub struct Fleet {
    paths: Paths,
    slots: Vec<Slot>,
    starts: u64,
    kills: u64,
    /// Processes that ended by themselves, and how.
    pub exits: Vec<String>,
}

struct Slot {
    role: Role,
    process: Child,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Fleet {
    /// Starts this many of each.
    pub fn start(paths: Paths, relays: usize, consumers: usize) -> Result<Self> {
        let mut fleet = Self { paths, slots: Vec::new(), starts: 0, kills: 0, exits: Vec::new() };
        let relays = std::iter::repeat_n(Role::Relay, relays);
        for role in relays.chain(std::iter::repeat_n(Role::Consumer, consumers)) {
            let process = fleet.spawn(role, None)?;
            fleet.slots.push(Slot { role, process });
        }
        Ok(fleet)
    }

    fn spawn(&mut self, role: Role, failpoint: Option<&str>) -> Result<Child> {
        self.starts += 1;
        let config = match role {
            Role::Relay => &self.paths.relay_config,
            Role::Consumer => &self.paths.consumer_config,
        };
        let log = self.paths.folder.join(format!("{}-{}.log", role.command(), self.starts));
        let log = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
        let mut command = Command::new(&self.paths.program);
        command.arg(role.command()).arg("--config").arg(config);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        if let Some(point) = failpoint {
            command.env("CONSIGN_FAILPOINTS", point);
        }
        command.spawn().with_context(|| format!("cannot start {}", self.paths.program.display()))
    }

    /// The slots of a role.
    pub fn slots(&self, role: Role) -> Vec<usize> {
        (0..self.slots.len()).filter(|&slot| self.slots[slot].role == role).collect()
    }

    /// Processes killed by signal or at a failpoint so far.
    pub fn kills(&self) -> u64 {
        self.kills
    }

    /// SIGKILL, and a new process in its place, which ends at a failpoint if one is given.
    pub fn replace(&mut self, slot: usize, failpoint: Option<&str>) -> Result<()> {
        let old = &mut self.slots[slot].process;
        old.kill()?;
        old.wait()?;
        self.kills += 1;
        let role = self.slots[slot].role;
        self.slots[slot].process = self.spawn(role, failpoint)?;
        Ok(())
    }

    /// Sends a signal to one process.
    pub fn signal(&self, slot: usize, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.slots[slot].process), signal)?)
    }

    /// Waits until the process in the slot ends, and starts a new one in its place; `None` when it still runs.
    pub async fn ended(&mut self, slot: usize, deadline: Duration) -> Result<Option<ExitStatus>> {
        let end = Instant::now() + deadline;
        loop {
            if let Some(status) = self.slots[slot].process.try_wait()? {
                let role = self.slots[slot].role;
                self.slots[slot].process = self.spawn(role, None)?;
                return Ok(Some(status));
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// The same for a process that must end at its failpoint; whether it did.
    pub async fn aborted(&mut self, slot: usize, deadline: Duration) -> Result<bool> {
        let Some(status) = self.ended(slot, deadline).await? else { return Ok(false) };
        if status.signal() != Some(ABORT) {
            bail!("the process did not end at its failpoint: {status}");
        }
        self.kills += 1;
        Ok(true)
    }

    /// Kills everything, for good.
    pub fn stop(&mut self) -> Result<()> {
        self.tend()?;
        self.slots.clear();
        Ok(())
    }

    /// Starts anew what ended by itself, as a supervisor would, and notes it.
    pub fn tend(&mut self) -> Result<()> {
        for slot in 0..self.slots.len() {
            if let Some(status) = self.slots[slot].process.try_wait()? {
                let role = self.slots[slot].role;
                self.exits.push(format!("{}: {status}", role.command()));
                self.slots[slot].process = self.spawn(role, None)?;
            }
        }
        Ok(())
    }
}
