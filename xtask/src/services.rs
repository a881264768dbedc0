//! Real servers for the tests, from Debian packages and Java artifacts, kept away from the host's own.
//!
//! Packages are downloaded by a private apt, unpacked into a folder, and made to run from there with the C
//! library they came with. No container engine, no system service and, after the download, no root is needed.
//! RocketMQ alone runs on the host's Java, which is installed when it is missing.
//!
//! - [`catalog`]: which services there are, with ports, URLs and package pins
//! - [`site`]: folder, account and locks
//! - [`archive`], [`cache`], [`program`], [`relocation`]: from package to runnable program; [`maven`]: from artifacts
//! - [`server`]: up, down, kill, pause, resume; [`process`] and [`probe`] look at what runs
//! - [`database`], [`rabbitmq`], [`rocketmq`], [`certificate`]: how each kind is started

pub mod archive;
mod cache;
pub mod catalog;
mod certificate;
mod database;
mod maven;
mod probe;
mod process;
mod program;
mod rabbitmq;
mod relocation;
mod rocketmq;
pub mod server;
pub mod site;

use std::process::ExitCode;
use std::thread;

use anyhow::{Result, bail, ensure};
use serde_json::json;

use catalog::{CLUSTER_NAME, Service};
use server::State;
use site::Site;

/// Progress, on stderr: stdout is for data.
pub fn say(message: &str) {
    eprintln!("services: {message}");
}

/// Runs `cargo xtask services ...`.
pub fn run(words: &[&str]) -> Result<ExitCode> {
    let Some((&action, names)) = words.split_first() else {
        eprintln!("xtask: `services` needs a command: up down kill pause resume status urls fetch wipe ctl");
        return Ok(ExitCode::from(2));
    };
    let site = Site::from_environment()?;
    Ok(match action {
        "up" => each(&or(parse(names)?, &Service::USUAL), |service| server::up(&site, service).map(drop)),
        "fetch" => each(&or(parse(names)?, &Service::USUAL), |service| {
            program::fetch(&site, service.package()).map(drop)
        }),
        "down" => down(&site, &or(parse(names)?, &Service::ALL))?,
        "kill" => each(&named(names)?, |service| server::kill(&site, service)),
        "pause" => each(&named(names)?, |service| server::pause(&site, service)),
        "resume" => each(&named(names)?, |service| server::resume(&site, service)),
        "wipe" => each(&named(names)?, |service| server::wipe(&site, service)),
        "status" => status(&site, names)?,
        "urls" => urls(&site, &or(parse(names)?, &Service::ALL)),
        "ctl" => control(&site, names)?,
        other => {
            eprintln!("xtask: unknown command `services {other}`; `cargo xtask help` lists them");
            ExitCode::from(2)
        }
    })
}

/// The variables under which tests find a service.
pub fn variables(site: &Site, service: Service) -> Vec<(String, String)> {
    let mut variables = vec![(service.url_variable(), service.url(site.port_base))];
    if let Some(ports) = service.rocketmq_ports(site.port_base) {
        let name = format!("CONSIGN_TEST_{}_NAMESRV", service.name().to_uppercase());
        variables.push((name, format!("127.0.0.1:{}", ports.name_server)));
    }
    if let Some(url) = service.tls_url(site.port_base) {
        variables.push((service.tls_url_variable(), url));
        let authority = site.certificates(service).join(certificate::AUTHORITY);
        variables.push((service.tls_authority_variable(), authority.display().to_string()));
    }
    variables
}

/// Does the work for all services side by side; fails when one fails, after all have ended.
fn each(services: &[Service], work: impl Fn(Service) -> Result<()> + Sync) -> ExitCode {
    let work = &work;
    let failures = thread::scope(|scope| {
        let threads: Vec<_> = services.iter().map(|&service| scope.spawn(move || work(service))).collect();
        let results = threads
            .into_iter()
            .map(|thread| thread.join().expect("the work reports errors, it never panics"));
        results.filter_map(Result::err).collect::<Vec<_>>()
    });
    for failure in &failures {
        say(&format!("error: {failure:#}"));
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Stops services side by side.
pub fn down(site: &Site, services: &[Service]) -> Result<ExitCode> {
    // The first node of a cluster last, so that it can be started without the others.
    for &joiner in services.iter().filter(|service| service.joins().is_some()) {
        server::down(site, joiner)?;
    }
    Ok(each(services, |service| server::down(site, service)))
}

fn parse(names: &[&str]) -> Result<Vec<Service>> {
    let mut services = Vec::new();
    for &name in names {
        let meant =
            if name == CLUSTER_NAME { Service::CLUSTER.to_vec() } else { vec![Service::from_name(name)?] };
        for service in meant {
            if !services.contains(&service) {
                services.push(service);
            }
        }
    }
    Ok(services)
}

fn named(names: &[&str]) -> Result<Vec<Service>> {
    ensure!(!names.is_empty(), "this command needs the names of the services it is meant for");
    parse(names)
}

fn or(services: Vec<Service>, otherwise: &[Service]) -> Vec<Service> {
    if services.is_empty() { otherwise.to_vec() } else { services }
}

fn status(site: &Site, words: &[&str]) -> Result<ExitCode> {
    let (options, names): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| word.starts_with('-'));
    ensure!(
        options.iter().all(|&option| option == "--json"),
        "`services status` knows only the option --json"
    );
    let mut rows = Vec::new();
    for service in or(parse(&names)?, &Service::ALL) {
        let state = match server::state(site, service) {
            State::Down => "down",
            State::Up => "up",
            State::Paused => "paused",
            State::Silent => "silent",
        };
        let pid = server::leader(site, service).map(|leader| leader.pid);
        let version = program::present(site, service.package()).map(|program| program.version);
        rows.push((service, state, pid, version));
    }
    if options.is_empty() {
        for (service, state, pid, version) in rows {
            let version = version.unwrap_or_else(|| "-".into());
            let pid = pid.map_or_else(|| "-".into(), |pid| pid.to_string());
            println!(
                "{:<11} {state:<7} pid {pid:<8} port {:<6} {version}",
                service.name(),
                service.port(site.port_base)
            );
        }
    } else {
        let document: Vec<_> = rows
            .into_iter()
            .map(|(service, state, pid, version)| {
                json!({
                    "name": service.name(), "state": state, "pid": pid, "port": service.port(site.port_base),
                    "version": version, "url": service.url(site.port_base), "tls_url": service.tls_url(site.port_base),
                })
            })
            .collect();
        println!("{:#}", json!(document));
    }
    Ok(ExitCode::SUCCESS)
}

fn control(site: &Site, words: &[&str]) -> Result<ExitCode> {
    let Some((&name, arguments)) = words.split_first() else {
        bail!("`services ctl` needs the name of a RabbitMQ node and a rabbitmqctl command");
    };
    let succeeded = server::control(site, Service::from_name(name)?, arguments)?;
    Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn urls(site: &Site, services: &[Service]) -> ExitCode {
    for &service in services.iter().filter(|&&service| server::leader(site, service).is_some()) {
        for (name, value) in variables(site, service) {
            println!("{name}={value}");
        }
    }
    ExitCode::SUCCESS
}
