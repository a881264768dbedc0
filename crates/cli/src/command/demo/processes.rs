//! The demo's child processes: relays and consumers that get killed and started again.

use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use tokio::process::{Child, Command};

use super::orders::Dice;
use super::world::World;

/// What a child process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `consign relay`
    Relay,
    /// `consign consume`
    Consumer,
}

impl Kind {
    fn command(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Consumer => "consume",
        }
    }
}

/// How many processes of each kind run side by side.
const SIDE_BY_SIDE: usize = 2;
/// How often each kind is killed.
const KILLS: usize = 4;

/// When to kill: at seeded fractions of the work done.
#[derive(Debug)]
pub struct KillPlan {
    relays: Vec<f64>,
    consumers: Vec<f64>,
    dice: Dice,
}

impl KillPlan {
    /// The plan of a seed.
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x6b69_6c6c);
        let fractions = |dice: &mut Dice| {
            let mut fractions: Vec<f64> = (0..KILLS).map(|_| 0.02 + 0.85 * dice.fraction()).collect();
            // Taken from the end: the earliest comes last.
            fractions.sort_by(|a, b| b.total_cmp(a));
            fractions
        };
        Self { relays: fractions(&mut dice), consumers: fractions(&mut dice), dice }
    }

    fn of(&mut self, kind: Kind) -> &mut Vec<f64> {
        match kind {
            Kind::Relay => &mut self.relays,
            Kind::Consumer => &mut self.consumers,
        }
    }

    /// True when a kill of this kind is due at this fraction of the work.
    pub fn due(&mut self, kind: Kind, fraction: f64) -> bool {
        self.of(kind).last().is_some_and(|next| fraction >= *next)
    }

    /// True while the plan has kills of this kind left.
    pub fn remaining(&mut self, kind: Kind) -> bool {
        !self.of(kind).is_empty()
    }
}

struct Running {
    kind: Kind,
    child: Child,
}

/// All children.
pub struct Processes {
    running: Vec<Running>,
    relay_kills: u32,
    consumer_kills: u32,
}

impl Processes {
    /// Starts the relays and consumers.
    pub fn start(world: &World) -> anyhow::Result<Self> {
        let mut running = Vec::new();
        for kind in [Kind::Relay, Kind::Consumer] {
            for _ in 0..SIDE_BY_SIDE {
                running.push(Running { kind, child: spawn(kind, world)? });
            }
        }
        Ok(Self { running, relay_kills: 0, consumer_kills: 0 })
    }

    /// How often a process of this kind was killed.
    pub fn kills(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Relay => self.relay_kills,
            Kind::Consumer => self.consumer_kills,
        }
    }

    /// Kills a random process of this kind with SIGKILL and starts another one in its place.
    pub async fn kill(&mut self, kind: Kind, plan: &mut KillPlan, world: &World) -> anyhow::Result<()> {
        plan.of(kind).pop();
        let of_kind: Vec<usize> =
            (0..self.running.len()).filter(|index| self.running[*index].kind == kind).collect();
        let chosen = of_kind[plan.dice.index(of_kind.len())];
        let process = &mut self.running[chosen];
        if process.child.try_wait()?.is_none() {
            process.child.kill().await.context("cannot kill a child process")?;
            match kind {
                Kind::Relay => self.relay_kills += 1,
                Kind::Consumer => self.consumer_kills += 1,
            }
        }
        self.running[chosen].child = spawn(kind, world)?;
        Ok(())
    }

    /// A child that ended by itself is a failure of the demo.
    pub fn restart_dead(&mut self, world: &World) -> anyhow::Result<()> {
        for process in &mut self.running {
            if let Some(status) = process.child.try_wait()? {
                let tail = world.log_tail();
                anyhow::bail!("consign {} ended by itself: {status}\n{tail}", process.kind.command());
            }
        }
        Ok(())
    }

    /// Asks every child to drain, and waits.
    pub async fn stop_all(&mut self) -> anyhow::Result<()> {
        const DRAIN: Duration = Duration::from_secs(30);
        for process in &self.running {
            if let Some(id) = process.child.id() {
                let status = Command::new("kill").args(["-TERM", &id.to_string()]).status().await?;
                anyhow::ensure!(status.success(), "cannot send SIGTERM to a child process");
            }
        }
        for process in &mut self.running {
            let status = tokio::time::timeout(DRAIN, process.child.wait())
                .await
                .with_context(|| format!("consign {} did not drain within 30 s", process.kind.command()))??;
            anyhow::ensure!(status.success(), "consign {} ended with {status}", process.kind.command());
        }
        Ok(())
    }

    /// Ends every child at once.
    pub async fn kill_all(&mut self) {
        for process in &mut self.running {
            // A child that is gone already is what is wanted.
            let _ = process.child.kill().await;
        }
    }
}

fn spawn(kind: Kind, world: &World) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("cannot find this program's own path")?;
    let log = File::options().create(true).append(true).open(world.log())?;
    Command::new(program)
        .arg(kind.command())
        .arg("--config")
        .arg(match kind {
            Kind::Relay => world.relay_config(),
            Kind::Consumer => world.consumer_config(),
        })
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start consign {}", kind.command()))
}
