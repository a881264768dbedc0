//! `cargo xtask test`: brings up the servers, runs every check that CI runs, and sums up.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::services::archive::Unavailable;
use crate::services::catalog::Service;
use crate::services::server::{self, Raised};
use crate::services::site::Site;
use crate::services::{self, say};
use crate::{simulate, tidy, torture, workspace};

/// The servers that tests use.
const SERVICES: [Service; 7] = [
    Service::Mysql,
    Service::Mariadb,
    Service::Redis,
    Service::Rabbitmq,
    Service::Rabbitmq4,
    Service::Rabbitmq43,
    Service::Rocketmq,
];

/// The end-to-end tests crash the program at named points, which only this feature compiles in.
pub const FAILPOINTS: &str = "consign-cli/failpoints";

/// As people name the steps.
const STEPS: &str = "fmt tidy clippy test sim torture";
/// Events of the torture that is a step.
const TORTURE_EVENTS: &str = "10000";

/// The steps, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Format,
    Tidy,
    Clippy,
    Test,
    Simulate,
    Torture,
}

impl Step {
    const ALL: [Self; 6] =
        [Self::Format, Self::Tidy, Self::Clippy, Self::Test, Self::Simulate, Self::Torture];

    fn name(self) -> &'static str {
        match self {
            Self::Format => "fmt",
            Self::Tidy => "tidy",
            Self::Clippy => "clippy",
            Self::Test => "test",
            Self::Simulate => "sim",
            Self::Torture => "torture",
        }
    }

    fn from_name(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|step| step.name() == name);
        found.with_context(|| format!("unknown step `{name}`; known are: {STEPS}"))
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    /// Empty means all.
    only: Vec<Step>,
    keep_servers: bool,
    for_cargo_test: Vec<String>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--only" => {
                    let name =
                        words.next().with_context(|| format!("--only needs the name of a step: {STEPS}"))?;
                    options.only.push(Step::from_name(name)?);
                }
                "--keep" => options.keep_servers = true,
                "--" => options.for_cargo_test = words.by_ref().map(|&word| word.to_owned()).collect(),
                other => bail!("unknown option `{other}` of `xtask test`; known are --only, --keep and --"),
            }
        }
        Ok(options)
    }

    /// The whole workspace, unless the arguments for cargo choose packages.
    fn scope(&self) -> Option<&'static str> {
        let mut for_cargo = self.for_cargo_test.iter().take_while(|word| *word != "--");
        let chosen = for_cargo.any(|word| word.starts_with("-p") || word.starts_with("--package"));
        (!chosen).then_some("--workspace")
    }

    /// Crash points, unless the chosen packages do not know them.
    fn features(&self) -> &'static [&'static str] {
        let knows = self.scope().is_some() || self.for_cargo_test.iter().any(|word| word == "consign-cli");
        if knows { &["--features", FAILPOINTS] } else { &[] }
    }

    /// Without `--only` every step, but neither simulation nor torture when packages are chosen: they are about the whole.
    fn includes(&self, step: Step) -> bool {
        let of_the_whole = matches!(step, Step::Simulate | Step::Torture);
        let every = self.only.is_empty() && (!of_the_whole || self.scope().is_some());
        every || self.only.contains(&step)
    }
}

/// Runs `cargo xtask test`.
pub fn run(words: &[&str]) -> Result<ExitCode> {
    let options = Options::parse(words)?;
    let mut summary = Summary::default();
    let mut servers = Servers::default();
    if options.includes(Step::Test) {
        let site = Site::from_environment()?;
        summary.time("services", || servers.raise(&site));
        steps(&options, &servers, &mut summary);
        if !options.keep_servers {
            services::down(&site, &servers.started)?;
        }
    } else {
        steps(&options, &servers, &mut summary);
    }
    summary.print(&servers);
    Ok(if summary.has_failure() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn steps(options: &Options, servers: &Servers, summary: &mut Summary) {
    for step in Step::ALL.into_iter().filter(|&step| options.includes(step)) {
        eprintln!("\n== {} ==", step.name());
        summary.time(step.name(), || match step {
            Step::Format => succeeds(workspace::cargo().args(["fmt", "--all", "--check"])),
            Step::Tidy => tidy::check(),
            Step::Clippy => {
                let arguments = ["clippy", "--workspace", "--all-targets", "--features", FAILPOINTS];
                succeeds(workspace::cargo().args(arguments).args(["--", "-D", "warnings"]))
            }
            Step::Test => {
                let mut cargo = workspace::cargo();
                cargo.args(["test", "--no-fail-fast"]).args(options.scope()).args(options.features());
                cargo.args(&options.for_cargo_test);
                succeeds(cargo.envs(&servers.variables))
            }
            Step::Simulate => simulate::run(),
            // It has servers of this checkout for itself, also where the tests used others.
            Step::Torture if servers.lack_mysql => Ok(()),
            Step::Torture => succeeds(torture::command()?.args(["--short", "--events", TORTURE_EVENTS])),
        });
    }
}

fn succeeds(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{status}");
    }
    Ok(())
}

/// The servers of this run.
#[derive(Debug, Default)]
struct Servers {
    /// For the environment of the tests.
    variables: BTreeMap<String, String>,
    /// Those that this run started, and so ends.
    started: Vec<Service>,
    /// Name and version, or where else a server came from.
    used: Vec<String>,
    /// The torture needs MySQL itself.
    lack_mysql: bool,
    /// What a reader of the result must know.
    warnings: Vec<String>,
}

impl Servers {
    /// Starts every server that the environment does not name already.
    fn raise(&mut self, site: &Site) -> Result<()> {
        let runner = std::env::current_exe().context("cannot tell where this runner is")?;
        self.set("CONSIGN_XTASK", runner.display().to_string());
        self.set("CONSIGN_SERVICES_DIR", site.folder.display().to_string());
        self.set("CONSIGN_SERVICES_PORT_BASE", site.port_base.to_string());
        let outcomes = thread::scope(|scope| {
            let threads: Vec<_> = SERVICES
                .into_iter()
                .filter(|&service| !is_given(service))
                .map(|service| (service, scope.spawn(move || server::up(site, service))))
                .collect();
            let join = |(service, thread): (Service, thread::ScopedJoinHandle<'_, _>)| {
                (service, thread.join().expect("starting a server reports errors, it never panics"))
            };
            threads.into_iter().map(join).collect::<Vec<_>>()
        });
        for service in SERVICES.into_iter().filter(|&service| is_given(service)) {
            self.used.push(format!("{} from {}", service.name(), service.url_variable()));
        }
        let failures: Vec<_> = outcomes
            .into_iter()
            .filter_map(|(service, outcome)| self.account(site, service, outcome))
            .collect();
        if failures.is_empty() {
            return Ok(());
        }
        bail!("{}", failures.join("\n"))
    }

    /// Takes a server into the environment; or tells why it is missing, unless the run can do without.
    fn account(&mut self, site: &Site, service: Service, outcome: Result<Raised>) -> Option<String> {
        let error = match outcome {
            Ok(raised) => {
                let version = &raised.program().version;
                self.used.push(format!("{} {version}", service.name()));
                if matches!(raised, Raised::Started(_)) {
                    self.started.push(service);
                }
                self.variables.extend(services::variables(site, service));
                return None;
            }
            Err(error) => error,
        };
        let is_unavailable = error.downcast_ref::<Unavailable>().is_some();
        match service {
            Service::Mysql if is_unavailable => {
                let url = std::env::var(Service::Mariadb.url_variable());
                self.set(
                    &service.url_variable(),
                    url.unwrap_or_else(|_| Service::Mariadb.url(site.port_base)),
                );
                self.lack_mysql = true;
                self.warnings.push(format!(
                    "MySQL COULD NOT BE HAD: its tests ran against MariaDB and prove nothing about MySQL, and nothing was \
                     tortured ({error:#})"
                ));
                None
            }
            Service::Rabbitmq43 if is_unavailable => {
                self.warnings
                    .push(format!("RabbitMQ 4.3 COULD NOT BE HAD: nothing ran against it ({error:#})"));
                None
            }
            Service::Rocketmq if is_unavailable => {
                self.warnings
                    .push(format!("RocketMQ COULD NOT BE HAD: its tests cannot pass without it ({error:#})"));
                None
            }
            _ => {
                say(&format!("error: {error:#}"));
                Some(format!("{error:#}"))
            }
        }
    }

    fn set(&mut self, name: &str, value: String) {
        self.variables.insert(name.into(), value);
    }
}

/// Whether the environment names a server to use instead of starting one.
fn is_given(service: Service) -> bool {
    std::env::var(service.url_variable()).is_ok_and(|url| !url.is_empty())
}

/// How each step went.
#[derive(Debug, Default)]
struct Summary {
    rows: Vec<(&'static str, Duration, Option<String>)>,
}

impl Summary {
    fn time(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) {
        let started = Instant::now();
        let outcome = work();
        self.rows.push((name, started.elapsed(), outcome.err().map(|error| format!("{error:#}"))));
    }

    fn has_failure(&self) -> bool {
        self.rows.iter().any(|(_, _, failure)| failure.is_some())
    }

    fn print(&self, servers: &Servers) {
        println!("\n== summary ==");
        for (name, took, failure) in &self.rows {
            let verdict = failure.as_ref().map_or_else(|| "ok".into(), |reason| format!("FAILED: {reason}"));
            println!("{name:<9} {:>7.1} s  {verdict}", took.as_secs_f64());
        }
        if !servers.used.is_empty() {
            println!("servers:  {}", servers.used.join(", "));
        }
        for warning in &servers.warnings {
            println!("WARNING:  {warning}");
        }
        println!(
            "{}",
            if self.has_failure() { "xtask test: FAILED" } else { "xtask test: all steps passed" }
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_behind_the_dashes_go_to_cargo_test() {
        let options =
            Options::parse(&["--only", "test", "--keep", "--", "-p", "x", "--", "--nocapture"]).unwrap();

        assert_eq!(options.only, [Step::Test]);
        assert!(options.keep_servers);
        assert_eq!(options.for_cargo_test, ["-p", "x", "--", "--nocapture"]);
    }

    #[test]
    fn whole_workspace_is_tested_unless_packages_are_chosen() {
        let scope = |words: &[&str]| Options::parse(words).unwrap().scope();

        assert_eq!(scope(&[]), Some("--workspace"));
        assert_eq!(scope(&["--", "claim", "--", "-p"]), Some("--workspace"));
        assert_eq!(scope(&["--", "-p", "consign-store"]), None);
    }

    #[test]
    fn crash_points_are_compiled_in_whenever_the_program_is_tested() {
        let features = |words: &[&str]| Options::parse(words).unwrap().features();

        assert_eq!(features(&[]), ["--features", FAILPOINTS]);
        assert_eq!(features(&["--", "-p", "consign-cli"]), ["--features", FAILPOINTS]);
        assert!(features(&["--", "-p", "consign-store"]).is_empty());
    }

    #[test]
    fn torture_is_left_out_when_packages_are_chosen_unless_it_is_asked_for() {
        let includes = |words: &[&str]| Options::parse(words).unwrap().includes(Step::Torture);

        assert!(includes(&[]));
        assert!(!includes(&["--", "-p", "consign-store"]));
        assert!(includes(&["--only", "torture"]));
    }

    #[test]
    fn unknown_step_is_refused_with_the_known_ones() {
        let error = Options::parse(&["--only", "lint"]).unwrap_err().to_string();

        assert!(error.contains("`lint`") && error.contains("clippy"), "{error}");
    }

    #[test]
    fn failure_of_one_step_fails_the_run_though_later_steps_pass() {
        let mut summary = Summary::default();
        summary.time("first", || bail!("broken"));
        summary.time("second", || Ok(()));

        assert!(summary.has_failure());
    }

    #[test]
    fn missing_mysql_is_replaced_only_when_it_could_not_be_had() {
        let site = Site::from_environment().unwrap();
        let mut servers = Servers::default();
        let unavailable = anyhow::anyhow!(Unavailable("no network".into())).context("mysql");

        let fetched = servers.account(&site, Service::Mysql, Err(unavailable));
        let crashed = servers.account(&site, Service::Mysql, Err(anyhow::anyhow!("ended while starting")));

        assert_eq!(fetched, None);
        assert!(servers.variables["CONSIGN_TEST_MYSQL_URL"].starts_with("mysql://"));
        assert_eq!(servers.warnings.len(), 1);
        assert!(crashed.is_some_and(|reason| reason.contains("ended while starting")));
    }
}
