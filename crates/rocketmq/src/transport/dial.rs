//! Opening a connection: TCP without delay, TLS over it, and the HTTP/2 handshake.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::body::Body;

use crate::error::StartError;
use crate::options::{Address, Options, TlsOptions};

/// Quiet time after which a connection is asked for a sign of life. Longer than the time between heartbeats, so that a
/// healthy connection is never pinged: a proxy counts pings without calls against the client
/// (apache/rocketmq-clients#872 is what happens without them).
const PING_AFTER: Duration = Duration::from_secs(15);
/// Time a ping may take before the connection is given up.
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// How much one stream, and one connection, may have in flight towards us: a few messages of the largest size.
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;

/// Opens connections. The TLS settings are loaded once.
#[derive(Clone)]
pub(crate) struct Dialer {
    tls: Option<(TlsConnector, Option<String>)>,
    timeout: Duration,
}

impl Dialer {
    /// A dialer with the files of the TLS settings read.
    pub(crate) async fn new(options: &Options) -> Result<Self, StartError> {
        let tls = match options.tls.clone() {
            None => None,
            Some(tls) => {
                let name = tls.server_name.clone();
                // Certificates are files, and the system may have hundreds.
                let config = tokio::task::spawn_blocking(move || client_config(&tls)).await;
                let config = config.map_err(|error| StartError::Tls(error.to_string()))??;
                Some((TlsConnector::from(Arc::new(config)), name))
            }
        };
        Ok(Self { tls, timeout: options.connection_timeout })
    }

    pub(super) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// A connection ready for calls, or why there is none. Takes at most the connection timeout.
    pub(super) async fn dial(&self, address: &Address) -> Result<SendRequest<Body>, String> {
        let dialed = tokio::time::timeout(self.timeout, self.open(address)).await;
        dialed
            .unwrap_or_else(|_| Err(format!("no connection within {:?}", self.timeout)))
            .map_err(|reason| format!("{address}: {reason}"))
    }

    async fn open(&self, address: &Address) -> Result<SendRequest<Body>, String> {
        let stream = connect(address).await.map_err(|error| format!("connecting failed: {error}"))?;
        let Some((connector, name)) = &self.tls else { return shake(stream).await };
        let name = name.clone().unwrap_or_else(|| address.host.clone());
        let server = ServerName::try_from(name.clone())
            .map_err(|_| format!("server name {name:?} is neither a host name nor an address"))?;
        let secured = connector.connect(server, stream).await;
        shake(secured.map_err(|error| format!("tls failed: {error}"))?).await
    }
}

async fn shake<S>(stream: S) -> Result<SendRequest<Body>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let shaken = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(stream))
        .await;
    let (sender, connection) = shaken.map_err(|error| format!("http/2 handshake failed: {error}"))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection to a proxy ended");
        }
    });
    Ok(sender)
}

async fn connect(address: &Address) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for candidate in lookup_host((address.host.as_str(), address.port)).await? {
        let connected = async {
            let socket = if candidate.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
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
    Err(last)
}

fn client_config(tls: &TlsOptions) -> Result<ClientConfig, StartError> {
    // The provider is named here, so that nothing depends on what the process installed.
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| StartError::Tls(error.to_string()))?
        .with_root_certificates(roots(tls.ca_file.as_deref())?);
    let mut config = match (&tls.client_cert, &tls.client_key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(certificate), Some(key)) => {
            let chain = certificates(certificate)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
            let config = builder.with_client_auth_cert(chain, key);
            config.map_err(|error| StartError::Tls(error.to_string()))?
        }
        _ => return Err(StartError::Tls("client_cert and client_key must be set together".to_owned())),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, StartError> {
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
        let text = "the system has no certificate authorities, set cacertfile in the url";
        return Err(StartError::Tls(text.to_owned()));
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, StartError> {
    let certificates = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(unreadable(file, &"it holds no certificate")),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(unreadable(file, &error)),
    }
}

fn unreadable(file: &Path, error: &dyn std::fmt::Display) -> StartError {
    StartError::Tls(format!("file {} is not usable: {error}", file.display()))
}
