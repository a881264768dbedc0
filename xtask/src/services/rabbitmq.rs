//! How RabbitMQ nodes are configured, started and controlled.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::catalog::Service;
use super::program::Program;
use super::site::Site;

/// Writes the configuration; done before every start, because ports may have changed.
pub fn configure(site: &Site, service: Service) -> Result<()> {
    let data = site.data(service);
    for folder in ["logs", "mnesia", "gen"] {
        fs::create_dir_all(data.join(folder))?;
    }
    let mut configuration = String::from(
        "loopback_users = none\n\
         vm_memory_high_watermark.absolute = 1GiB\n\
         disk_free_limit.absolute = 50MB\n\
         log.file.level = info\n\
         log.console = false\n",
    );
    if let Some(port) = service.tls_port(site.port_base) {
        let folder = site.certificates(service);
        let folder = folder.display();
        write!(
            configuration,
            "listeners.ssl.1 = 127.0.0.1:{port}\n\
             ssl_options.cacertfile = {folder}/ca.pem\n\
             ssl_options.certfile = {folder}/server.pem\n\
             ssl_options.keyfile = {folder}/server.key\n\
             ssl_options.verify = verify_none\n\
             ssl_options.fail_if_no_peer_cert = false\n"
        )?;
    }
    fs::write(data.join("rabbitmq.conf"), configuration)?;
    fs::write(data.join("advanced.config"), "[].\n")?;
    fs::write(data.join("plugins"), "[].\n")?;
    let cookie = data.join(".erlang.cookie");
    if !cookie.exists() {
        fs::write(&cookie, "consigntestcookie")?;
        fs::set_permissions(&cookie, fs::Permissions::from_mode(0o400))?;
    }
    Ok(())
}

pub fn server(site: &Site, service: Service, program: &Program) -> Result<Command> {
    command(site, service, program, "rabbitmq-server")
}

/// `rabbitmqctl` against a node.
pub fn control(site: &Site, service: Service, program: &Program, arguments: &[&str]) -> Result<Command> {
    let mut command = command(site, service, program, "rabbitmqctl")?;
    command.args(arguments);
    Ok(command)
}

/// Makes a node a member of another one's cluster.
pub fn join(site: &Site, joiner: Service, first: Service, program: &Program) -> Result<()> {
    let node = format!("{}@localhost", first.name());
    for arguments in [&["stop_app"][..], &["join_cluster", &node], &["start_app"]] {
        let output = control(site, joiner, program, arguments)?.output()?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            bail!(
                "{} could not join {}: `{}` failed: {}",
                joiner.name(),
                first.name(),
                arguments.join(" "),
                message.trim()
            );
        }
    }
    Ok(())
}

fn command(site: &Site, service: Service, program: &Program, name: &str) -> Result<Command> {
    let data = site.data(service);
    let port = service.port(site.port_base);
    let epmd_port = service.epmd_port(site.port_base).context("not a RabbitMQ node")?;
    let mut command = site.command(scripts(program)?.join(name), service);
    command
        .env(
            "PATH",
            format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", program.path("usr/lib/erlang/bin").display()),
        )
        .env("ERL_EPMD_PORT", epmd_port.to_string())
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        // A node at `localhost` needs nothing of the host's name or its hosts file.
        .env("RABBITMQ_NODENAME", format!("{}@localhost", service.name()))
        .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODE_PORT", port.to_string())
        .env("RABBITMQ_DIST_PORT", (port + 200).to_string())
        .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
        .env("RABBITMQ_CONFIG_FILE", data.join("rabbitmq.conf"))
        .env("RABBITMQ_ADVANCED_CONFIG_FILE", data.join("advanced.config"))
        .env("RABBITMQ_MNESIA_BASE", data.join("mnesia"))
        .env("RABBITMQ_LOG_BASE", data.join("logs"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", data.join("plugins"))
        .env("RABBITMQ_PID_FILE", data.join("rabbit.pid"))
        .env("RABBITMQ_GENERATED_CONFIG_DIR", data.join("gen"))
        // Idle schedulers that spin would take the processors from the tests.
        .env(
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
            "+sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}",
        )
        .env("RABBITMQ_CTL_ERL_ARGS", "+sbwt none");
    Ok(command)
}

/// The folder of the start scripts, which has the version in its name.
fn scripts(program: &Program) -> Result<PathBuf> {
    let parent = program.path("usr/lib/rabbitmq/lib");
    let entries = fs::read_dir(&parent).with_context(|| format!("cannot read {}", parent.display()))?;
    let mut servers = entries.flatten().map(|entry| entry.path()).filter(|path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("rabbitmq_server-"))
    });
    let server =
        servers.next().with_context(|| format!("there is no rabbitmq_server in {}", parent.display()))?;
    Ok(server.join("sbin"))
}
