//! How MySQL, MariaDB, PostgreSQL, Redis and NATS are initialised and started.

use std::path::Path;
use std::process::Command;

use super::catalog::Service;
use super::certificate;
use super::program::Program;
use super::site::Site;

const POSTGRES_BIN: &str = "usr/lib/postgresql/15/bin";

/// The command that creates the data folder, where the service has one.
pub fn initialisation(site: &Site, service: Service, program: &Program) -> Option<Command> {
    let data = site.data(service).join("data");
    match service {
        Service::Mysql => {
            let mut command = site.command(program.path("usr/sbin/mysqld"), service);
            command.args(["--no-defaults", "--initialize-insecure", "--innodb-redo-log-capacity=64M"]);
            mysql_paths(&mut command, program, &data);
            Some(command)
        }
        Service::Mariadb => {
            let mut command = site.command(program.path("usr/bin/mariadb-install-db"), service);
            let path = format!("{0}/usr/bin:{0}/usr/sbin:/usr/bin:/bin", program.folder.display());
            command.env("PATH", path);
            command
                .arg("--no-defaults")
                .arg(option("basedir", &program.path("usr")))
                .arg(option("datadir", &data));
            // With the default method root could only enter as root of the operating system.
            command.args([
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-name-resolve",
            ]);
            Some(command)
        }
        Service::Postgres => {
            let mut command = site.command(program.path(POSTGRES_BIN).join("initdb"), service);
            command.args([
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C.UTF-8",
                "--no-instructions",
            ]);
            command.arg("-D").arg(data).arg("-L").arg(program.path("usr/share/postgresql/15"));
            Some(command)
        }
        Service::Redis
        | Service::Nats
        | Service::Rabbitmq
        | Service::Rabbitmq4
        | Service::Rabbitmq4b
        | Service::Rabbitmq43
        | Service::Rabbitmqc1
        | Service::Rabbitmqc2
        | Service::Rabbitmqc3
        | Service::Rocketmq
        | Service::Rocketmqsync
        | Service::Rocketmqflush => None,
    }
}

pub fn mysql(site: &Site, program: &Program) -> Command {
    let mut command = site.command(program.path("usr/sbin/mysqld"), Service::Mysql);
    command.arg("--no-defaults");
    mysql_paths(&mut command, program, &site.data(Service::Mysql).join("data"));
    command.arg(option("plugin-dir", &program.path("usr/lib/mysql/plugin")));
    // The X protocol would take a port of its own, and the default folder for file imports does not exist.
    command.args(["--mysqlx=OFF", "--secure-file-priv=", "--innodb-redo-log-capacity=128M"]);
    mysql_service(&mut command, site, Service::Mysql);
    command
}

pub fn mariadb(site: &Site, program: &Program) -> Command {
    let mut command = site.command(program.path("usr/sbin/mariadbd"), Service::Mariadb);
    command.arg("--no-defaults");
    mysql_paths(&mut command, program, &site.data(Service::Mariadb).join("data"));
    command.arg(option("plugin-dir", &program.path("usr/lib/mysql/plugin")));
    mysql_service(&mut command, site, Service::Mariadb);
    command
}

pub fn postgres(site: &Site, program: &Program) -> Command {
    let mut command = site.command(program.path(POSTGRES_BIN).join("postgres"), Service::Postgres);
    let library = format!("dynamic_library_path={}", program.path("usr/lib/postgresql/15/lib").display());
    command.arg("-D").arg(site.data(Service::Postgres).join("data"));
    command.args(["-h", "127.0.0.1", "-p", &Service::Postgres.port(site.port_base).to_string()]);
    command.args(["-c", "unix_socket_directories=", "-c", &library]);
    command
}

pub fn redis(site: &Site, program: &Program) -> Command {
    let mut command = site.command(program.path("usr/bin/redis-server"), Service::Redis);
    command.args(["--port", &Service::Redis.port(site.port_base).to_string(), "--bind", "127.0.0.1"]);
    command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
    command.arg("--dir").arg(site.data(Service::Redis));
    if let Some(port) = Service::Redis.tls_port(site.port_base) {
        let folder = site.certificates(Service::Redis);
        command.args(["--tls-port", &port.to_string(), "--tls-auth-clients", "no"]);
        for (option, file) in [
            ("--tls-ca-cert-file", certificate::AUTHORITY),
            ("--tls-cert-file", "server.pem"),
            ("--tls-key-file", "server.key"),
        ] {
            command.arg(option).arg(folder.join(file));
        }
    }
    command
}

pub fn nats(site: &Site, program: &Program) -> Command {
    let mut command = site.command(program.path("usr/sbin/nats-server"), Service::Nats);
    command.args(["-a", "127.0.0.1", "-p", &Service::Nats.port(site.port_base).to_string()]);
    command.arg("-js").arg("-sd").arg(site.data(Service::Nats).join("js"));
    command
}

fn mysql_paths(command: &mut Command, program: &Program, data: &Path) {
    command.arg(option("basedir", &program.path("usr")));
    command.arg(option("lc-messages-dir", &program.path("usr/share/mysql")));
    command.arg(option("character-sets-dir", &program.path("usr/share/mysql/charsets")));
    command.arg(option("datadir", data));
}

fn mysql_service(command: &mut Command, site: &Site, service: Service) {
    command.args(["--bind-address=127.0.0.1", &format!("--port={}", service.port(site.port_base))]);
    // Relative to the data folder: the full path of a deep checkout would not fit into a socket address.
    command.args(["--socket=mysqld.sock", "--pid-file=mysqld.pid"]);
    command.args([
        "--innodb-flush-log-at-trx-commit=1",
        "--innodb-buffer-pool-size=512M",
        "--max-connections=500",
    ]);
}

fn option(name: &str, value: &Path) -> String {
    format!("--{name}={}", value.display())
}
