//! The socket: TCP with keepalive and without delay, and TLS over it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::error::ConnectError;
use crate::options::{ConnectOptions, TlsOptions};

/// Resolves the host and connects to the first address that answers.
pub(super) async fn connect(options: &ConnectOptions) -> Result<TcpStream, ConnectError> {
    let host = options.host.clone();
    let address = format!("{host}:{}", options.port);
    let resolved = lookup_host((host.as_str(), options.port)).await;
    let candidates = resolved.map_err(|source| ConnectError::Resolve { host: host.clone(), source })?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for candidate in candidates {
        let socket = if candidate.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let connected = async {
            let socket = socket?;
            socket.set_keepalive(true)?;
            let stream = socket.connect(candidate).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        match connected.await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(match last.kind() {
        io::ErrorKind::ConnectionRefused => ConnectError::Refused { address, source: last },
        _ => ConnectError::Io { address, source: last },
    })
}

/// Makes the connection secure, or fails.
pub(super) async fn secure(
    stream: TcpStream,
    options: &ConnectOptions,
    tls: &TlsOptions,
) -> Result<TlsStream<TcpStream>, ConnectError> {
    let tls = tls.clone();
    let name = tls.server_name.clone().unwrap_or_else(|| options.host.clone());
    // Certificates are files, and the system may have hundreds.
    let config = tokio::task::spawn_blocking(move || client_config(&tls)).await;
    let config = config.map_err(|error| ConnectError::Tls(error.to_string()))??;
    let server = ServerName::try_from(name.clone()).map_err(|_| {
        ConnectError::Tls(format!("server name {name:?} is neither a host name nor an address"))
    })?;
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(server, stream).await.map_err(|error| ConnectError::Tls(error.to_string()))
}

fn client_config(tls: &TlsOptions) -> Result<ClientConfig, ConnectError> {
    // The provider is named here, so that nothing depends on what the process installed.
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| ConnectError::Tls(error.to_string()))?
        .with_root_certificates(roots(tls.ca_file.as_deref())?);
    match (&tls.client_cert, &tls.client_key) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(certificate), Some(key)) => {
            let chain = certificates(certificate)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
            let config = builder.with_client_auth_cert(chain, key);
            config.map_err(|error| ConnectError::Tls(error.to_string()))
        }
        _ => Err(ConnectError::Tls("client_cert and client_key must be set together".to_owned())),
    }
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, ConnectError> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = ca_file {
        for certificate in certificates(file)? {
            roots.add(certificate).map_err(|error| unreadable(file, &error))?;
        }
        return Ok(roots);
    }
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if roots.is_empty() {
        let text = "the system has no certificate authorities, set cacertfile in the uri";
        return Err(ConnectError::Tls(text.to_owned()));
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let certificates = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(unreadable(file, &"it holds no certificate")),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(unreadable(file, &error)),
    }
}

fn unreadable(file: &Path, error: &dyn std::fmt::Display) -> ConnectError {
    ConnectError::Tls(format!("file {} is not usable: {error}", file.display()))
}
