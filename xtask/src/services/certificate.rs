//! A private certificate authority and a server certificate for `localhost` and 127.0.0.1, made with openssl.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::catalog::OPENSSL;
use super::program;
use super::site::Site;

/// Independent of the host's openssl configuration, which a private openssl does not even have.
const CONFIGURATION: &str = "\
[req]
distinguished_name = name
prompt = no
[name]
CN = consign test
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost, IP:127.0.0.1
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
";

/// The file of the certificate authority, in PEM.
pub const AUTHORITY: &str = "ca.pem";

/// Makes `ca.pem`, `server.pem` and `server.key` in `folder`, unless they are there.
pub fn ensure(site: &Site, folder: &Path) -> Result<()> {
    let done = folder.join("done");
    if done.is_file() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    fs::write(folder.join("openssl.cnf"), CONFIGURATION)?;
    let openssl = openssl(site)?;
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-config", "openssl.cnf"];
    let authority = ["-subj", "/CN=consign test authority", "-keyout", "ca.key", "-out", AUTHORITY];
    let server = ["-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr"];
    run(
        &openssl,
        folder,
        &[&["req", "-x509", "-days", "3650", "-extensions", "authority"][..], &key, &authority],
    )?;
    run(&openssl, folder, &[&["req", "-new"][..], &key, &server])?;
    let sign = ["x509", "-req", "-in", "server.csr", "-CA", AUTHORITY, "-CAkey", "ca.key", "-CAcreateserial"];
    let result = ["-days", "3650", "-extfile", "openssl.cnf", "-extensions", "server", "-out", "server.pem"];
    run(&openssl, folder, &[&sign[..], &result])?;
    fs::write(done, "")?;
    Ok(())
}

/// The host's openssl, or one from the archive.
fn openssl(site: &Site) -> Result<PathBuf> {
    if Command::new("openssl").arg("version").output().is_ok_and(|output| output.status.success()) {
        return Ok("openssl".into());
    }
    Ok(program::fetch(site, &OPENSSL)?.path("usr/bin/openssl"))
}

fn run(openssl: &Path, folder: &Path, arguments: &[&[&str]]) -> Result<()> {
    let arguments = arguments.concat();
    let mut command = Command::new(openssl);
    // The packaged program would look for its configuration in a folder that is not there.
    command.args(&arguments).current_dir(folder).env("OPENSSL_CONF", folder.join("openssl.cnf"));
    let output = command.output().with_context(|| format!("cannot run {}", openssl.display()))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!(
            "cannot make the test certificates: `openssl {}` failed: {}",
            arguments.join(" "),
            message.trim()
        );
    }
    Ok(())
}
