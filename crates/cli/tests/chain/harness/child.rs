//! Processes of the program: short commands, and long-running ones that are killed, frozen and stopped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

use super::{random_name, text};

const PROGRAM: &str = env!("CARGO_BIN_EXE_consign");
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Runs a short command to its end.
pub fn consign(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).output().expect("the program can be run")
}

/// A long-running process of the program; killed when dropped.
pub struct Child {
    process: std::process::Child,
    command: &'static str,
    log: PathBuf,
}

impl Child {
    /// Starts `consign relay`, `consign consume` or `consign run`; its log stands beside the config.
    pub fn start(command: &'static str, config: &Path, environment: &[(&str, &str)]) -> Self {
        let log = config.with_file_name(format!("{command}-{}.log", random_name()));
        let file = File::create(&log).unwrap();
        let process = Command::new(PROGRAM)
            .args([command, "--config", text(config)])
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .expect("the program can be run");
        Self { process, command, log }
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// SIGSTOP: the process freezes where it is.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGHUP.
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("the process has not been waited for");
    }

    /// How the process ended; ends the test when it does not before the deadline.
    pub async fn wait(&mut self, deadline: Duration) -> ExitStatus {
        let end = Instant::now() + deadline;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "consign {} still runs after {deadline:?}", self.command);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Returns when the process says that it runs.
    pub async fn ready(&mut self) {
        const DEADLINE: Duration = Duration::from_secs(20);
        let end = Instant::now() + DEADLINE;
        while !self.log().contains(" running ") {
            assert!(self.is_running(), "consign {} ended while starting", self.command);
            assert!(Instant::now() < end, "consign {} does not come up", self.command);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// What the process wrote so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The most memory that the process had at once so far, in KiB, shared libraries and the program itself included.
    pub fn peak_memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux tells the peak");
        line.trim().trim_end_matches(" kB").parse().expect("the peak is a number")
    }

    /// Whether the process has not ended.
    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(40)..];
            eprintln!("-- consign {} wrote, at last:\n{}", self.command, tail.join("\n"));
        }
    }
}
