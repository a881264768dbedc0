//! The life of a server: down, initialised, up, paused, killed.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::Signal;

use super::catalog::{RocketmqPorts, Service};
use super::process::{LOOK_EVERY, Leader, until};
use super::program::{self, Program};
use super::site::Site;
use super::{certificate, database, probe, rabbitmq, rocketmq, say};

/// How long a server may take to end, or a port to become free.
const END_LIMIT: Duration = Duration::from_secs(30);
/// A start fails when some outgoing connection happens to hold the server's port just then.
const STARTS: usize = 3;
const LOG_LINES_SHOWN: usize = 15;

/// What a server is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Down,
    Up,
    Paused,
    /// Its process lives, but does not answer in its protocol.
    Silent,
}

/// What `up` had to do.
#[derive(Clone, Debug)]
pub enum Raised {
    Started(Program),
    WasUp(Program),
}

impl Raised {
    pub fn program(&self) -> &Program {
        match self {
            Self::Started(program) | Self::WasUp(program) => program,
        }
    }
}

/// The server's leading process, if any of its processes lives.
pub fn leader(site: &Site, service: Service) -> Option<Leader> {
    Leader::read(&pid_file(site, service)).filter(|leader| leader.is_alive())
}

pub fn state(site: &Site, service: Service) -> State {
    let Some(leader) = leader(site, service) else { return State::Down };
    if leader.is_paused() {
        State::Paused
    } else if probe::answers(service, site.port_base) {
        State::Up
    } else {
        State::Silent
    }
}

/// Fetches, initialises and starts, as far as each is still to be done, and waits until the server answers.
pub fn up(site: &Site, service: Service) -> Result<Raised> {
    let _lock = site.lock_service(service)?;
    let program = program::fetch(site, service.package())?;
    if let Some(leader) = leader(site, service) {
        leader.signal_all(Signal::CONT)?;
        if until(site.patience, || probe::answers(service, site.port_base)) {
            say(&format!("{}: already up", service.name()));
            return Ok(Raised::WasUp(program));
        }
        bail!(
            "{}: process {} does not answer; try `cargo xtask services kill {0}` and `up` again\n{}",
            service.name(),
            leader.pid,
            last_lines(&log_file(site, service), 0)
        );
    }
    if service.rocketmq_ports(site.port_base).is_some() {
        rocketmq::ensure_room(site)?;
    }
    let before = Instant::now();
    initialise(site, service, &program)?;
    let initialised = Instant::now();
    start(site, service, &program)?;
    if let Some(first) = service.joins() {
        join_cluster(site, service, first, &program)?;
    }
    if let (Some(leader), Some(_)) = (leader(site, service), service.rocketmq_ports(site.port_base)) {
        rocketmq::calm(leader.pid)?;
    }
    say(&format!(
        "{}: up on 127.0.0.1:{} (initialised in {:.1} s, started in {:.1} s)",
        service.name(),
        service.port(site.port_base),
        (initialised - before).as_secs_f64(),
        initialised.elapsed().as_secs_f64()
    ));
    Ok(Raised::Started(program))
}

/// Asks the server to end, and kills it when it does not.
pub fn down(site: &Site, service: Service) -> Result<()> {
    let _lock = site.lock_service(service)?;
    end(site, service)
}

/// Kills the server as a crash would; its data stays.
pub fn kill(site: &Site, service: Service) -> Result<()> {
    let _lock = site.lock_service(service)?;
    let Some(leader) = leader(site, service) else {
        say(&format!("{}: not running", service.name()));
        return Ok(());
    };
    leader.kill()?;
    fs::remove_file(pid_file(site, service))?;
    wait_for_ports(site, service)?;
    say(&format!("{}: killed", service.name()));
    Ok(())
}

/// Stops every process of the server; connections stay open and nothing answers.
pub fn pause(site: &Site, service: Service) -> Result<()> {
    let _lock = site.lock_service(service)?;
    let leader = running(site, service)?;
    leader.signal_all(Signal::STOP)?;
    ensure!(until(END_LIMIT, || leader.is_paused()), "{}: not every process stopped", service.name());
    say(&format!("{}: paused", service.name()));
    Ok(())
}

/// Lets a paused server continue, and waits until it answers.
pub fn resume(site: &Site, service: Service) -> Result<()> {
    let _lock = site.lock_service(service)?;
    running(site, service)?.signal_all(Signal::CONT)?;
    let answers = until(site.patience, || probe::answers(service, site.port_base));
    ensure!(answers, "{}: does not answer after it was resumed", service.name());
    say(&format!("{}: resumed", service.name()));
    Ok(())
}

/// Stops the server and deletes its data.
pub fn wipe(site: &Site, service: Service) -> Result<()> {
    let _lock = site.lock_service(service)?;
    end(site, service)?;
    let data = site.data(service);
    if data.exists() {
        fs::remove_dir_all(&data).with_context(|| format!("cannot delete {}", data.display()))?;
        say(&format!("{}: data deleted", service.name()));
    }
    Ok(())
}

/// Runs `rabbitmqctl` with the terminal's own streams; true when it succeeded.
pub fn control(site: &Site, service: Service, arguments: &[&str]) -> Result<bool> {
    ensure!(service.is_rabbitmq(), "`ctl` is for RabbitMQ; {} is none", service.name());
    running(site, service)?;
    let program = program::fetch(site, service.package())?;
    Ok(rabbitmq::control(site, service, &program, arguments)?.status()?.success())
}

fn running(site: &Site, service: Service) -> Result<Leader> {
    leader(site, service).with_context(|| {
        format!("{0} is not running; start it with `cargo xtask services up {0}`", service.name())
    })
}

fn initialise(site: &Site, service: Service, program: &Program) -> Result<()> {
    let data = site.data(service);
    let done = data.join(".init");
    if done.is_file() {
        return Ok(());
    }
    if data.exists() {
        fs::remove_dir_all(&data)?;
    }
    fs::create_dir_all(&data)?;
    site.hand_over(service)?;
    if let Some(mut command) = database::initialisation(site, service, program) {
        let (output, errors) = log_streams(site, service)?;
        let status = command.stdout(output).stderr(errors).status().with_context(|| unstartable(&command))?;
        ensure!(
            status.success(),
            "{}: initialisation failed ({status}); `{command:?}` said:\n{}",
            service.name(),
            last_lines(&log_file(site, service), 0)
        );
    }
    fs::write(done, "")?;
    Ok(())
}

fn start(site: &Site, service: Service, program: &Program) -> Result<()> {
    for attempt in 1..=STARTS {
        wait_for_ports(site, service)?;
        prepare(site, service)?;
        let log_before = fs::metadata(log_file(site, service)).map_or(0, |metadata| metadata.len());
        let (output, errors) = log_streams(site, service)?;
        // After the log exists, so that it belongs to the server's account too.
        site.hand_over(service)?;
        let mut command = command(site, service, program)?;
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.stdout(output).stderr(errors).spawn().with_context(|| unstartable(&command))?;
        let outcome = wait_until_ready(site, service, child);
        let Err(error) = outcome else { return Ok(()) };
        let said = last_lines(&log_file(site, service), log_before);
        if attempt == STARTS || !speaks_of_taken_port(&said) {
            bail!(
                "{}: {error:#}; the last lines of {} are:\n{said}",
                service.name(),
                log_file(site, service).display()
            );
        }
        say(&format!("{}: its port was taken for a moment, starting again", service.name()));
    }
    Ok(())
}

fn prepare(site: &Site, service: Service) -> Result<()> {
    if service.tls_port(site.port_base).is_some() {
        certificate::ensure(site, &site.certificates(service))?;
    }
    if service.is_rabbitmq() {
        rabbitmq::configure(site, service)?;
    }
    if service.is_rocketmq() {
        rocketmq::configure(site, service)?;
    }
    // A killed server stays in the process table until it is collected, or its pid is given to another process;
    // its successor takes either for a running server. Nothing of it is alive here.
    for left_behind in ["postmaster.pid", "mysqld.sock.lock"] {
        let file = site.data(service).join("data").join(left_behind);
        if file.exists() {
            fs::remove_file(file)?;
        }
    }
    Ok(())
}

fn command(site: &Site, service: Service, program: &Program) -> Result<Command> {
    Ok(match service {
        Service::Mysql => database::mysql(site, program),
        Service::Mariadb => database::mariadb(site, program),
        Service::Postgres => database::postgres(site, program),
        Service::Redis => database::redis(site, program),
        Service::Nats => database::nats(site, program),
        Service::Rabbitmq
        | Service::Rabbitmq4
        | Service::Rabbitmq4b
        | Service::Rabbitmq43
        | Service::Rabbitmqc1
        | Service::Rabbitmqc2
        | Service::Rabbitmqc3 => rabbitmq::server(site, service, program)?,
        Service::Rocketmq | Service::Rocketmqsync | Service::Rocketmqflush => {
            rocketmq::server(site, service, program)?
        }
    })
}

fn wait_until_ready(site: &Site, service: Service, mut child: Child) -> Result<()> {
    let leader = Leader::of(child.id())?;
    leader.write(&pid_file(site, service))?;
    let deadline = Instant::now() + site.patience;
    let outcome = loop {
        if probe::answers(service, site.port_base) {
            break Ok(());
        }
        if let Some(status) = child.try_wait()? {
            break Err(anyhow!("ended while starting ({status})"));
        }
        if Instant::now() >= deadline {
            let limit = site.patience.as_secs();
            let hint = hint(site, service);
            break Err(anyhow!(
                "did not answer within {limit} s (CONSIGN_SERVICES_TIMEOUT sets the limit){hint}"
            ));
        }
        thread::sleep(LOOK_EVERY);
    };
    if outcome.is_err() {
        leader.kill()?;
        fs::remove_file(pid_file(site, service))?;
    }
    // Collects the child if it ends before this runner does.
    thread::spawn(move || child.wait());
    outcome
}

/// A cluster node that did not stop last waits for the one that did.
fn hint(site: &Site, service: Service) -> &'static str {
    let others = Service::ALL.into_iter().filter(|other| other.joins() == Some(service));
    let mut members = others.filter(|&other| joined(site, other).is_file());
    if members.any(|other| leader(site, other).is_none()) {
        "; it is in a cluster with a node that is down: start all of them, or wipe all of them"
    } else {
        ""
    }
}

fn join_cluster(site: &Site, joiner: Service, first: Service, program: &Program) -> Result<()> {
    let joined = joined(site, joiner);
    if joined.is_file() {
        return Ok(());
    }
    // The first node never waits for the lock of another one, so this cannot end in a deadlock.
    up(site, first)?;
    let _one_at_a_time = site.lock("join")?;
    rabbitmq::join(site, joiner, first, program)?;
    Ok(fs::write(joined, "")?)
}

/// Exists from when a node joined its cluster on.
fn joined(site: &Site, joiner: Service) -> PathBuf {
    site.data(joiner).join(".joined")
}

fn end(site: &Site, service: Service) -> Result<()> {
    if let Some(leader) = leader(site, service) {
        let started = Instant::now();
        // A stopped process does not act on a request to end.
        leader.signal_all(Signal::CONT)?;
        match service {
            // It waits for its clients after SIGTERM, but not after SIGINT.
            Service::Postgres => leader.ask(Signal::INT),
            // Two processes beside each other.
            _ if service.is_rocketmq() => leader.signal_all(Signal::TERM)?,
            _ => leader.ask(Signal::TERM),
        }
        if !until(END_LIMIT, || !leader.is_alive()) {
            say(&format!("{}: still there after {} s, killing it", service.name(), END_LIMIT.as_secs()));
            leader.kill()?;
        }
        fs::remove_file(pid_file(site, service))?;
        say(&format!("{}: down ({:.1} s)", service.name(), started.elapsed().as_secs_f64()));
    }
    if let Some(port) = service.epmd_port(site.port_base).filter(|&port| !probe::is_free(port)) {
        end_port_mapper(site, service, port);
    }
    Ok(())
}

/// RabbitMQ leaves its port mapper behind. It stays while the cluster's other node needs it.
fn end_port_mapper(site: &Site, service: Service, port: u16) {
    let shared_with_running = Service::ALL.into_iter().any(|other| {
        other != service && other.epmd_port(site.port_base) == Some(port) && leader(site, other).is_some()
    });
    let ended = shared_with_running
        || until(END_LIMIT, || {
            probe::end_epmd(port);
            probe::is_free(port)
        });
    if !ended {
        say(&format!("{}: the Erlang port mapper on port {port} is still there", service.name()));
    }
}

fn wait_for_ports(site: &Site, service: Service) -> Result<()> {
    let own = [Some(service.port(site.port_base)), service.tls_port(site.port_base)];
    let inner = service.rocketmq_ports(site.port_base).map(RocketmqPorts::all);
    for port in own.into_iter().flatten().chain(inner.into_iter().flatten()) {
        ensure!(
            until(END_LIMIT, || probe::is_free(port)),
            "{}: port {port} is taken by another process (a server of another checkout?); end that one, or set \
             CONSIGN_SERVICES_PORT_BASE to another number than {}",
            service.name(),
            site.port_base
        );
    }
    Ok(())
}

fn pid_file(site: &Site, service: Service) -> PathBuf {
    site.data(service).join("pid")
}

fn log_file(site: &Site, service: Service) -> PathBuf {
    site.data(service).join("log")
}

fn log_streams(site: &Site, service: Service) -> Result<(File, File)> {
    let log = File::options().append(true).create(true).open(log_file(site, service))?;
    Ok((log.try_clone()?, log))
}

fn unstartable(command: &Command) -> String {
    format!("cannot start {}", Path::new(command.get_program()).display())
}

fn speaks_of_taken_port(log: &str) -> bool {
    log.contains("already in use") || log.contains("eaddrinuse")
}

/// The end of what the log holds behind `offset`.
fn last_lines(log: &Path, offset: u64) -> String {
    let mut text = Vec::new();
    let read = File::open(log).and_then(|mut file| {
        file.seek(SeekFrom::Start(offset))?;
        file.read_to_end(&mut text)
    });
    if read.is_err() || text.is_empty() {
        return "  (nothing)".into();
    }
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().map(|line| format!("  {line}")).collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}
