//! The place where services live: folder, ports, and the account the servers run under.

use std::fs::{self, File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::geteuid;

use super::catalog::Service;
use super::say;
use crate::workspace;

const PORT_BASE: u16 = 23000;
/// Offsets from the base reach this far, see `catalog.rs`.
const PORT_SPAN: u16 = 500;

/// Everything that is fixed by the environment.
#[derive(Debug)]
pub struct Site {
    /// All files are below this folder (absolute, symbolic links resolved).
    pub folder: PathBuf,
    /// Where packages are unpacked; several sets of servers may share it.
    pub programs: PathBuf,
    pub port_base: u16,
    /// How long a server may take to answer after its start.
    pub patience: Duration,
    /// The account that servers run under; none when the runner is itself an ordinary user.
    account: Option<Account>,
}

#[derive(Debug)]
struct Account {
    name: String,
    user: u32,
    group: u32,
}

impl Site {
    /// Reads `CONSIGN_SERVICES_DIR`, `CONSIGN_SERVICES_PROGRAMS`, `CONSIGN_SERVICES_PORT_BASE`,
    /// `CONSIGN_SERVICES_TIMEOUT` (seconds) and `CONSIGN_SERVICES_USER`, and makes the folders.
    pub fn from_environment() -> Result<Self> {
        let port_base = number("CONSIGN_SERVICES_PORT_BASE", PORT_BASE)?;
        ensure!(
            (1024..=u16::MAX - PORT_SPAN).contains(&port_base),
            "CONSIGN_SERVICES_PORT_BASE={port_base} must lie between 1024 and {}",
            u16::MAX - PORT_SPAN
        );
        let patience = Duration::from_secs(number("CONSIGN_SERVICES_TIMEOUT", 180)?);
        let account = if geteuid().is_root() { Some(service_account()?) } else { None };
        let folder = make_folder(account.is_some())?;
        let programs = match chosen_folder("CONSIGN_SERVICES_PROGRAMS")? {
            Some(chosen) => plain(&chosen, "CONSIGN_SERVICES_PROGRAMS")?,
            None => folder.join("prog"),
        };
        for part in [&programs, &folder.join("run")] {
            fs::create_dir_all(part).with_context(|| format!("cannot make {}", part.display()))?;
            open_to_others(part);
        }
        Ok(Self { folder, programs, port_base, patience, account })
    }

    /// Where a package is unpacked.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// Where a service keeps its data, log and pid.
    pub fn data(&self, service: Service) -> PathBuf {
        self.folder.join("run").join(service.name())
    }

    /// The certificates of a service's TLS listener, see `certificate.rs`.
    pub fn certificates(&self, service: Service) -> PathBuf {
        self.data(service).join("tls")
    }

    /// Holds the lock of a service, and says so when that means waiting for another run.
    pub fn lock_service(&self, service: Service) -> Result<File> {
        let (file, path) = lock_file(&self.folder, service.name())?;
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {
                say(&format!("{}: waiting for another xtask that is at work on it", service.name()));
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(file)
    }

    /// Holds the named lock until the returned file is dropped; two runs at once take turns.
    pub fn lock(&self, name: &str) -> Result<File> {
        lock(&self.folder, name)
    }

    /// The same for a package that is being unpacked, across all sets of servers that share the programs.
    pub fn lock_program(&self, name: &str) -> Result<File> {
        lock(&self.programs, name)
    }

    /// A command of a server: under the service account, with an environment of its own, in the data folder.
    pub fn command(&self, program: impl AsRef<Path>, service: Service) -> Command {
        let data = self.data(service);
        let mut command = Command::new(program.as_ref());
        command.env_clear();
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8").env("HOME", &data);
        command.current_dir(data).stdin(Stdio::null());
        if let Some(account) = &self.account {
            // Supplementary groups are dropped along with the user id.
            command.gid(account.group).uid(account.user);
        }
        command
    }

    /// Gives the data folder to the service account and proves that it can work there.
    pub fn hand_over(&self, service: Service) -> Result<()> {
        let Some(account) = &self.account else { return Ok(()) };
        let data = self.data(service);
        give(&data, account)?;
        let reached =
            self.command("test", service).args(["-w", "."]).status().is_ok_and(|status| status.success());
        ensure!(
            reached,
            "user `{}` cannot reach {}: make the folders above it searchable (chmod o+x) or set \
             CONSIGN_SERVICES_DIR to a folder that is",
            account.name,
            data.display()
        );
        Ok(())
    }
}

fn lock(folder: &Path, name: &str) -> Result<File> {
    let (file, path) = lock_file(folder, name)?;
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

fn lock_file(folder: &Path, name: &str) -> Result<(File, PathBuf)> {
    let folder = folder.join("lock");
    fs::create_dir_all(&folder)?;
    let path = folder.join(name);
    let file = File::create(&path).with_context(|| format!("cannot open the lock {}", path.display()))?;
    Ok((file, path))
}

fn number<N: std::str::FromStr>(variable: &str, otherwise: N) -> Result<N> {
    match std::env::var(variable) {
        Ok(text) if !text.is_empty() => {
            text.parse().ok().with_context(|| format!("{variable}={text} must be a number that fits"))
        }
        _ => Ok(otherwise),
    }
}

fn service_account() -> Result<Account> {
    let name = std::env::var("CONSIGN_SERVICES_USER").unwrap_or_else(|_| "nobody".into());
    let accounts = fs::read_to_string("/etc/passwd").context("cannot read the list of users")?;
    let Some((user, group)) = ids_of(&name, &accounts) else {
        bail!("there is no user `{name}` to run servers under: set CONSIGN_SERVICES_USER to one that exists");
    };
    ensure!(user != 0, "CONSIGN_SERVICES_USER={name} is root, under which database servers refuse to run");
    Ok(Account { name, user, group })
}

/// User and group id of `name` in a passwd file.
fn ids_of(name: &str, accounts: &str) -> Option<(u32, u32)> {
    let mut fields = accounts
        .lines()
        .map(|line| line.split(':'))
        .find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
    let user = fields.nth(1)?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    Some((user, group))
}

fn make_folder(for_other_account: bool) -> Result<PathBuf> {
    let folder = match chosen_folder("CONSIGN_SERVICES_DIR")? {
        Some(chosen) => chosen,
        None => usual_folder(for_other_account)?,
    };
    let folder = plain(&folder, "CONSIGN_SERVICES_DIR")?;
    open_to_others(&folder);
    Ok(folder)
}

fn chosen_folder(variable: &str) -> Result<Option<PathBuf>> {
    let chosen = std::env::var_os(variable).filter(|value| !value.is_empty());
    Ok(chosen.map(std::path::absolute).transpose()?)
}

/// Makes the folder, resolves its links, and refuses what the start scripts of Erlang and the library paths of
/// programs cannot quote.
fn plain(folder: &Path, variable: &str) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let folder = folder.canonicalize()?;
    let plain = folder.to_str().is_some_and(|path| !path.contains([':', '$', '\'', '"']) && !has_space(path));
    ensure!(
        plain,
        "{} has characters that servers cannot take: set {variable} to a plain path",
        folder.display()
    );
    Ok(folder)
}

fn has_space(path: &str) -> bool {
    path.contains(char::is_whitespace)
}

/// `target/services`, or a private folder beside other temporary files when the servers' account could not
/// enter the checkout (a clone in somebody's home).
fn usual_folder(for_other_account: bool) -> Result<PathBuf> {
    let root = workspace::root();
    let inside = root.join("target/services");
    if !for_other_account || root.ancestors().all(is_searchable) {
        return Ok(inside);
    }
    let mut hasher = DefaultHasher::new();
    root.hash(&mut hasher);
    let outside = std::env::temp_dir().join(format!("consign-services-{:016x}", hasher.finish()));
    fs::create_dir_all(&outside)?;
    let owner = fs::symlink_metadata(&outside)?;
    ensure!(
        owner.is_dir() && owner.uid() == geteuid().as_raw(),
        "{} belongs to somebody else: set CONSIGN_SERVICES_DIR to a folder of your own",
        outside.display()
    );
    say(&format!("the checkout is closed to other users, so servers live in {}", outside.display()));
    Ok(outside)
}

fn is_searchable(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|metadata| metadata.mode() & 0o001 != 0)
}

/// Best effort: a strict umask must not lock the service account out; [`Site::hand_over`] checks the result.
fn open_to_others(folder: &Path) {
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o755));
}

fn give(path: &Path, account: &Account) -> Result<()> {
    std::os::unix::fs::lchown(path, Some(account.user), Some(account.group))
        .with_context(|| format!("cannot give {} to user `{}`", path.display(), account.name))?;
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), account)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_from_a_passwd_line() {
        let accounts =
            "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65533:nobody:/nonexistent:/usr/sbin/nologin\n";

        assert_eq!(ids_of("nobody", accounts), Some((65534, 65533)));
        assert_eq!(ids_of("nob", accounts), None);
    }
}
