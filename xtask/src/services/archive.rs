//! The Debian archive, read through a private apt: own lists, own cache, an empty package status. The host's
//! apt is neither read nor changed, except for the mirror and proxy it is set up to use.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::cache;
use super::site::Site;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Packages that dependencies pull in but that a server process never loads, by the start of their names.
const NEVER_LOADED: &[&str] = &[
    "adduser",
    "base-",
    "bsd",
    "coreutils",
    "cron",
    "debconf",
    "dpkg",
    "galera",
    "gawk",
    "gcc-1",
    "grep",
    "init-system",
    "iproute2",
    "libaudit",
    "libc-l10n",
    "libdb5",
    "libdbi",
    "libdebconf",
    "libgdbm",
    "libjson-perl",
    "libllvm",
    "libpam",
    "libperl",
    "libproc",
    "libpython",
    "libsem",
    "libsepol",
    "libz3",
    "locales",
    "login",
    "logrotate",
    "lsb",
    "mawk",
    "media-types",
    "mount",
    "netbase",
    "openssl",
    "passwd",
    "perl",
    "postgresql-client-common",
    "postgresql-common",
    "procps",
    "psmisc",
    "python3",
    "readline-common",
    "rsync",
    "sed",
    "sensible",
    "socat",
    "ssl-cert",
    "systemd",
    "sysvinit",
    "tar",
    "tzdata",
    "ucf",
    "util-linux",
];

/// Why a package could not be had: the archive, the network or the host's tools failed. A wrong digest is not
/// among these.
#[derive(Debug)]
pub struct Unavailable(pub String);

impl fmt::Display for Unavailable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// One package file of the archive.
#[derive(Debug, PartialEq, Eq)]
pub struct Deb {
    pub name: String,
    pub version: String,
    pub file: String,
    /// Lower-case hex, from the signed index.
    pub sha256: String,
}

/// One suite of the archive.
pub struct Archive<'site> {
    site: &'site Site,
    suite: &'static str,
    folder: PathBuf,
}

impl<'site> Archive<'site> {
    pub fn of_suite(name: &'static str, site: &'site Site) -> Self {
        Self { site, suite: name, folder: site.folder.join("apt").join(name) }
    }

    /// The packages and all they need at run time, as the suite has them now. `fresh` reads the index anew.
    pub fn resolve(&self, wanted: &[String], fresh: bool) -> Result<Vec<Deb>> {
        let _lock = self.site.lock(&format!("apt-{}", self.suite))?;
        self.configure(fresh)?;
        let plan = self.apt(&["install", "-s"], wanted)?;
        let chosen = planned(&plan, wanted);
        ensure!(!chosen.is_empty(), "apt plans to install nothing for {}", wanted.join(" "));
        let exact: Vec<_> = chosen.iter().map(|(name, version)| format!("{name}={version}")).collect();
        let addresses = self.apt(&["download", "--print-uris"], &exact)?;
        chosen.into_iter().map(|(name, version)| located(name, version, &addresses)).collect()
    }

    /// Puts the files into `folder`, from the download cache where it has them, and checks every digest.
    pub fn download(&self, debs: &[Deb], folder: &Path) -> Result<()> {
        let absent: Vec<_> =
            debs.iter().filter(|deb| !cache::restore(&deb.sha256, &folder.join(&deb.file))).collect();
        if absent.is_empty() {
            return Ok(());
        }
        let exact: Vec<_> = absent.iter().map(|deb| format!("{}={}", deb.name, deb.version)).collect();
        let mut command = self.apt_command(&["-qq", "download"], &exact);
        run(command.current_dir(folder))?;
        for deb in absent {
            let path = folder.join(&deb.file);
            let digest = cache::sha256(&path).map_err(|error| anyhow!("{error:#}").context(gone(&path)))?;
            ensure!(digest == deb.sha256, "{} has sha256 {digest}, the index says {}", deb.file, deb.sha256);
            cache::keep(&deb.sha256, &path);
        }
        Ok(())
    }

    fn configure(&self, fresh: bool) -> Result<()> {
        let done = self.folder.join("updated");
        if !fresh && done.is_file() {
            return Ok(());
        }
        let mirror = mirror()?;
        if !Path::new(KEYRING).is_file() {
            bail!(Unavailable(format!(
                "there is no {KEYRING}: install the Debian package debian-archive-keyring"
            )));
        }
        let _ = fs::remove_file(&done);
        for part in ["etc/apt.conf.d", "state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(self.folder.join(part))?;
        }
        fs::write(self.folder.join("state/status"), "")?;
        // A frozen copy of sid is past its Valid-Until; signatures are still verified. Suites that are released
        // need no exception.
        let option = if self.suite == "sid" { "check-valid-until=no " } else { "" };
        let source = format!("deb [{option}signed-by={KEYRING}] {mirror} {} main\n", self.suite);
        fs::write(self.folder.join("etc/sources.list"), source)?;
        fs::write(self.folder.join("apt.conf"), self.configuration())?;
        self.apt(&["-qq", "update"], &[])?;
        fs::write(done, "")?;
        Ok(())
    }

    fn configuration(&self) -> String {
        let folder = self.folder.display();
        let proxy = host_proxy();
        format!(
            "Dir::Etc \"{folder}/etc\";\n\
             Dir::Etc::sourcelist \"{folder}/etc/sources.list\";\n\
             Dir::Etc::sourceparts \"/nonexistent\";\n\
             Dir::Etc::parts \"{folder}/etc/apt.conf.d\";\n\
             Dir::State \"{folder}/state\";\n\
             Dir::State::status \"{folder}/state/status\";\n\
             Dir::Cache \"{folder}/cache\";\n\
             APT::Install-Recommends \"false\";\n\
             APT::Sandbox::User \"root\";\n\
             APT::Update::Error-Mode \"any\";\n\
             Acquire::Languages \"none\";\n\
             Acquire::Retries \"3\";\n\
             Acquire::http::Timeout \"30\";\n\
             Acquire::https::Timeout \"30\";\n\
             {proxy}"
        )
    }

    fn apt(&self, action: &[&str], packages: &[String]) -> Result<String> {
        let output = run(&mut self.apt_command(action, packages))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn apt_command(&self, action: &[&str], packages: &[String]) -> Command {
        let mut command = Command::new("apt-get");
        command
            .args(action)
            .args(packages)
            .env("APT_CONFIG", self.folder.join("apt.conf"))
            .env("LC_ALL", "C.UTF-8");
        command
    }
}

fn run(command: &mut Command) -> Result<Output> {
    let output = command.output().map_err(|error| {
        anyhow!(Unavailable(format!("cannot run apt-get ({error}): services need a Debian host, or set CONSIGN_TEST_<NAME>_URL to a server of your own")))
    })?;
    if output.status.success() {
        return Ok(output);
    }
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    let message = String::from_utf8_lossy(&output.stderr);
    bail!(Unavailable(format!(
        "`apt-get {}` failed; check the network and this host's apt sources, or set CONSIGN_DEBIAN_MIRROR:\n{}",
        words.join(" "),
        message.trim_end()
    )))
}

fn gone(path: &Path) -> Unavailable {
    Unavailable(format!("apt-get download left no readable {}", path.display()))
}

/// `CONSIGN_DEBIAN_MIRROR`, or the first Debian mirror in the host's own apt sources.
fn mirror() -> Result<String> {
    if let Ok(chosen) = std::env::var("CONSIGN_DEBIAN_MIRROR")
        && !chosen.is_empty()
    {
        return Ok(chosen.trim_end_matches('/').to_owned());
    }
    let mut files: Vec<PathBuf> = fs::read_dir("/etc/apt/sources.list.d")
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    files.sort();
    files.push("/etc/apt/sources.list".into());
    let found =
        files.iter().filter_map(|file| fs::read_to_string(file).ok()).find_map(|text| mirror_in(&text));
    found.ok_or_else(|| {
        anyhow!(Unavailable(
            "there is no Debian mirror in this host's apt sources: set CONSIGN_DEBIAN_MIRROR to one".into()
        ))
    })
}

/// The first Debian mirror in a sources file, one-line or deb822 style.
fn mirror_in(sources: &str) -> Option<String> {
    let relevant = sources.lines().filter(|line| line.starts_with("URIs:") || line.starts_with("deb "));
    let mut addresses = relevant.flat_map(str::split_whitespace).map(|word| word.trim_end_matches('/'));
    addresses.find(|word| word.starts_with("http") && word.ends_with("/debian")).map(str::to_owned)
}

/// The host's proxy settings for apt, as configuration lines.
fn host_proxy() -> String {
    let Ok(dump) = Command::new("apt-config").arg("dump").output() else { return String::new() };
    let dump = String::from_utf8_lossy(&dump.stdout).into_owned();
    let is_proxy =
        |line: &&str| line.starts_with("Acquire::http::Proxy") || line.starts_with("Acquire::https::Proxy");
    dump.lines().filter(is_proxy).fold(String::new(), |text, line| text + line + "\n")
}

/// Name and version of each package to unpack, from the output of a simulated installation.
fn planned(plan: &str, wanted: &[String]) -> Vec<(String, String)> {
    let lines = plan.lines().filter_map(|line| line.strip_prefix("Inst "));
    let pairs = lines.filter_map(|line| {
        let (name, rest) = line.split_once(' ')?;
        let version = rest.strip_prefix('(')?.split_whitespace().next()?;
        Some((name.to_owned(), version.to_owned()))
    });
    let is_wanted = |name: &str| wanted.iter().any(|wanted| wanted.split('=').next() == Some(name));
    pairs.filter(|(name, _)| is_wanted(name) || !is_never_loaded(name)).collect()
}

fn is_never_loaded(name: &str) -> bool {
    NEVER_LOADED.iter().any(|start| name.starts_with(start))
}

/// Finds a package among lines of the form `'address' file size SHA256:digest`.
fn located(name: String, version: String, addresses: &str) -> Result<Deb> {
    let beginning = format!("{name}_{}_", version.replace(':', "%3a"));
    let found = addresses.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let file = words.next().filter(|file| file.starts_with(&beginning))?;
        let digest = words.nth(1)?.strip_prefix("SHA256:")?;
        Some((file.to_owned(), digest.to_owned()))
    });
    let (file, sha256) =
        found.with_context(|| format!("apt-get names no file with a SHA256 for {name} {version}"))?;
    Ok(Deb { name, version, file, sha256 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_is_read_from_both_styles_and_never_from_a_comment() {
        let deb822 =
            "Types: deb\n# http://old.example/debian\nURIs: http://mirror.example/debian/\nSuites: x\n";
        let one_line =
            "# deb http://old.example/debian x main\ndeb [arch=amd64] https://a.example/debian x main\n";

        assert_eq!(mirror_in(deb822).as_deref(), Some("http://mirror.example/debian"));
        assert_eq!(mirror_in(one_line).as_deref(), Some("https://a.example/debian"));
        assert_eq!(mirror_in("deb https://b.example/node_20.x nodistro main\n"), None);
    }

    #[test]
    fn plan_leaves_out_what_no_server_loads_unless_it_was_asked_for() {
        let plan = "Reading package lists...\nInst perl (5.36.0-7 Debian:12 [amd64])\n\
                    Inst libc6 (2.36-9 Debian:12 [amd64])\nInst openssl (3.0.1-1 Debian:12 [amd64])\nConf libc6 (2)\n";
        let server = planned(plan, &["redis-server".into()]);
        let tool = planned(plan, &["openssl=3.0.1-1".into()]);

        assert_eq!(server, [("libc6".into(), "2.36-9".into())]);
        assert_eq!(tool.len(), 2);
    }

    #[test]
    fn file_of_a_version_with_an_epoch_is_found() {
        let lines =
            "'http://m.example/p/mariadb_1.deb' mariadb-server-core_1%3a10.11-1_amd64.deb 12 SHA256:ab\n";
        let deb = located("mariadb-server-core".into(), "1:10.11-1".into(), lines).unwrap();

        assert_eq!(deb.file, "mariadb-server-core_1%3a10.11-1_amd64.deb");
        assert_eq!(deb.sha256, "ab");
    }

    #[test]
    fn file_without_a_digest_is_refused() {
        assert!(located("a".into(), "1".into(), "'http://m.example/a' a_1_all.deb 12 MD5Sum:ab\n").is_err());
    }
}
