//! A started server as the operating system sees it: a leader, its process group, and its descendants.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How often a condition is looked at while waiting for it.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A line of the process table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    pid: i32,
    state: char,
    parent: i32,
    group: i32,
    /// Clock ticks since boot; tells a reused pid from the process that was meant.
    started: u64,
}

/// A server's leading process, which is also the leader of its process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leader {
    pub pid: i32,
    started: u64,
}

impl Leader {
    /// Identifies a process that was just started.
    pub fn of(pid: u32) -> Result<Self> {
        let entry = i32::try_from(pid).ok().and_then(entry);
        let Some(entry) = entry else { bail!("process {pid} ended at once") };
        Ok(Self { pid: entry.pid, started: entry.started })
    }

    pub fn read(file: &Path) -> Option<Self> {
        let text = fs::read_to_string(file).ok()?;
        let (pid, started) = text.trim().split_once(' ')?;
        Some(Self { pid: pid.parse().ok()?, started: started.parse().ok()? })
    }

    pub fn write(self, file: &Path) -> Result<()> {
        Ok(fs::write(file, format!("{} {}\n", self.pid, self.started))?)
    }

    /// Whether anything of the server is left.
    pub fn is_alive(self) -> bool {
        !self.family().is_empty()
    }

    /// Whether every process of the server is stopped.
    pub fn is_paused(self) -> bool {
        let family = self.family();
        !family.is_empty() && family.iter().all(|entry| matches!(entry.state, 'T' | 't'))
    }

    /// Sends the leader a signal that asks it to end.
    pub fn ask(self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            // It may have ended meanwhile, which is what was asked for.
            let _ = kill_process(pid, signal);
        }
    }

    /// Sends a signal to the group, and to descendants that have left it (PostgreSQL's children do).
    pub fn signal_all(self, signal: Signal) -> Result<()> {
        let family = self.family();
        ensure!(!family.is_empty(), "process {} is gone", self.pid);
        if let Some(group) = Pid::from_raw(self.pid) {
            let _ = kill_process_group(group, signal);
        }
        for entry in family.iter().filter(|entry| entry.group != self.pid) {
            if let Some(pid) = Pid::from_raw(entry.pid) {
                let _ = kill_process(pid, signal);
            }
        }
        Ok(())
    }

    /// Kills everything and waits until it is gone.
    pub fn kill(self) -> Result<()> {
        let ended = until(Duration::from_secs(30), || {
            let left = self.is_alive();
            if left {
                let _ = self.signal_all(Signal::KILL);
            }
            !left
        });
        ensure!(ended, "process group {} survived SIGKILL for 30 s", self.pid);
        Ok(())
    }

    fn family(self) -> Vec<Entry> {
        family(self, &table())
    }
}

/// Waits for a condition; false when the deadline passed first.
pub fn until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(LOOK_EVERY);
    }
    true
}

/// The leader, its group, and all their descendants that have not ended.
fn family(leader: Leader, table: &[Entry]) -> Vec<Entry> {
    let reused = table.iter().any(|entry| entry.pid == leader.pid && entry.started != leader.started);
    if reused {
        return Vec::new();
    }
    let mut members: Vec<Entry> = table.iter().filter(|entry| entry.group == leader.pid).cloned().collect();
    let mut next = 0;
    while let Some(parent) = members.get(next).map(|entry| entry.pid) {
        let children = table.iter().filter(|entry| entry.parent == parent);
        let new: Vec<_> = children.filter(|child| !members.contains(child)).cloned().collect();
        members.extend(new);
        next += 1;
    }
    // A zombie holds no port and no file; its parent, possibly a test, has only not collected it yet.
    members.retain(|entry| !matches!(entry.state, 'Z' | 'X'));
    members
}

fn table() -> Vec<Entry> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|found| entry(found.file_name().to_str()?.parse().ok()?)).collect()
}

fn entry(pid: i32) -> Option<Entry> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses a line of `/proc/PID/stat`; the command in it may hold spaces and parentheses.
fn parse(stat: &str) -> Option<Entry> {
    let (pid, rest) = stat.split_once(' ')?;
    let mut fields = rest.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let started = fields.nth(16)?.parse().ok()?;
    Some(Entry { pid: pid.parse().ok()?, state, parent, group, started })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    fn row(pid: i32, state: char, parent: i32, group: i32) -> Entry {
        Entry { pid, state, parent, group, started: 7 }
    }

    #[test]
    fn stat_line_is_parsed_behind_the_last_parenthesis() {
        let line = "42 (a) b (c) S 1 40 40 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 10 20";

        assert_eq!(parse(line), Some(Entry { pid: 42, state: 'S', parent: 1, group: 40, started: 98765 }));
    }

    #[test]
    fn family_holds_the_group_and_descendants_outside_it_but_no_zombie() {
        let leader = Leader { pid: 10, started: 7 };
        let table = [row(10, 'S', 1, 10), row(11, 'S', 10, 11), row(12, 'Z', 11, 11), row(13, 'S', 1, 1)];

        let pids: Vec<_> = family(leader, &table).iter().map(|entry| entry.pid).collect();

        assert_eq!(pids, [10, 11]);
    }

    #[test]
    fn group_whose_leader_ended_is_still_alive() {
        let leader = Leader { pid: 10, started: 7 };

        assert_eq!(family(leader, &[row(11, 'S', 1, 10)]).len(), 1);
    }

    #[test]
    fn reused_pid_is_not_mistaken_for_the_server() {
        let leader = Leader { pid: 10, started: 6 };

        assert!(family(leader, &[row(10, 'S', 1, 10)]).is_empty());
    }

    #[test]
    fn pause_stops_the_child_of_a_shell_and_kill_ends_both() {
        let mut shell = Command::new("sh").args(["-c", "sleep 600; true"]).process_group(0).spawn().unwrap();
        let leader = Leader::of(shell.id()).unwrap();
        assert!(until(Duration::from_secs(10), || leader.family().len() == 2), "the shell starts its child");

        leader.signal_all(Signal::STOP).unwrap();
        assert!(until(Duration::from_secs(10), || leader.is_paused()), "both are stopped");
        leader.signal_all(Signal::CONT).unwrap();
        assert!(until(Duration::from_secs(10), || !leader.is_paused()), "both run again");
        leader.kill().unwrap();

        assert!(!leader.is_alive());
        shell.wait().unwrap();
    }
}
