//! How to reach the proxies: addresses, credentials, TLS and times.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::credentials::Credentials;

const QUERY_KEYS: &str = "namespace, connection_timeout, request_timeout, cacertfile, certfile, keyfile, \
                          server_name_indication";

/// The port of a proxy when the URL names none.
const PORT: u16 = 8081;

/// A text that is not a RocketMQ URL, or one whose values do not fit. Never contains the secret key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Another scheme, or none.
    #[error("a rocketmq url starts with rocketmq:// or rocketmqs://, and only the latter takes tls keys")]
    Scheme,
    /// A host is missing or malformed.
    #[error(
        "a host of the rocketmq url is malformed, write rocketmq://host:port,host:port with ipv6 addresses in brackets"
    )]
    Host,
    /// A port is not a number from 1 to 65535.
    #[error("a port of the rocketmq url is not a number from 1 to 65535")]
    Port,
    /// A `%` that two hexadecimal digits do not follow, or bytes that are not UTF-8.
    #[error("the {0} of the rocketmq url is not percent-encoded utf-8")]
    Encoding(&'static str),
    /// Only one of access key and secret key.
    #[error("the rocketmq url has an access key or a secret key alone, write access:secret@host")]
    Credentials,
    /// A path.
    #[error("the rocketmq url, or its secret key, contains a raw slash or @, write %2F or %40")]
    Path,
    /// A query key nobody knows. Shown only if it looks like a key: it may be the rest of a secret.
    #[error("query key {0:?} of the rocketmq url is unknown, known are {QUERY_KEYS}")]
    UnknownKey(String),
    /// A query value that is not a number in the allowed range.
    #[error("query value {key}={value} of the rocketmq url must be a whole number from 1 to 65535")]
    Value {
        /// The query key.
        key: &'static str,
        /// The value as given, when it is a number: it may be the rest of a secret with a raw question mark.
        value: String,
    },
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl Address {
    /// An address from its parts.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

/// TLS settings. The server certificate is always verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// PEM file with the certificate authorities to trust *instead of* the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM file with the client certificate chain; needs `client_key`.
    pub client_cert: Option<PathBuf>,
    /// PEM file with the private key of the client certificate.
    pub client_key: Option<PathBuf>,
    /// Name to verify in the server certificates, when it differs from the hosts.
    pub server_name: Option<String>,
}

/// Everything needed to reach a cluster's proxies. `Debug` and `Display` never show the secret key.
///
/// ```
/// use consign_rocketmq::Options;
///
/// let options: Options = "rocketmq://app:s3cret@mq-1:8081,mq-2?namespace=shop".parse()?;
/// assert_eq!(options.addresses[1].port, 8081);
/// assert_eq!(options.to_string(), "rocketmq://app:***@mq-1:8081,mq-2:8081");
/// # Ok::<(), consign_rocketmq::UrlError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// The access points: proxies, or a load balancer before them. One that answers is enough.
    pub addresses: Vec<Address>,
    /// Access key and secret key; `None` sends no authorization.
    pub credentials: Option<Credentials>,
    /// TLS settings; `None` means plain connections. There is no fallback from one to the other.
    pub tls: Option<TlsOptions>,
    /// Namespace of all topics and groups; empty for none.
    pub namespace: String,
    /// Time for resolving, connecting, TLS and the HTTP/2 handshake of one connection.
    pub connection_timeout: Duration,
    /// Deadline of the calls the client makes on its own: routes, heartbeats, the end of a half message, termination.
    pub request_timeout: Duration,
    /// Goes through [`addresses`](Self::addresses) alone and never to the addresses in a route, which a proxy behind a
    /// tunnel or a port forwarding does not get right. Not for several proxies behind one balancer: the end of a half
    /// message must reach the proxy that took it.
    pub access_points_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            addresses: vec![Address::new("localhost", PORT)],
            credentials: None,
            tls: None,
            namespace: String::new(),
            connection_timeout: Duration::from_secs(3),
            request_timeout: Duration::from_secs(3),
            access_points_only: false,
        }
    }
}

impl Options {
    fn set(&mut self, key: &str, value: String) -> Result<(), UrlError> {
        match key {
            "namespace" => self.namespace = value,
            "connection_timeout" => self.connection_timeout = seconds("connection_timeout", value)?,
            "request_timeout" => self.request_timeout = seconds("request_timeout", value)?,
            "cacertfile" => self.tls()?.ca_file = Some(value.into()),
            "certfile" => self.tls()?.client_cert = Some(value.into()),
            "keyfile" => self.tls()?.client_key = Some(value.into()),
            "server_name_indication" => self.tls()?.server_name = Some(value),
            other => {
                let is_key = other.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
                return Err(UrlError::UnknownKey(if is_key { other } else { "..." }.to_owned()));
            }
        }
        Ok(())
    }

    /// A TLS key on rocketmq:// is a mistake that must not end in a plain connection.
    fn tls(&mut self) -> Result<&mut TlsOptions, UrlError> {
        self.tls.as_mut().ok_or(UrlError::Scheme)
    }
}

impl fmt::Display for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://", if self.tls.is_some() { "rocketmqs" } else { "rocketmq" })?;
        if let Some(credentials) = &self.credentials {
            write!(formatter, "{}:***@", Encoded(&credentials.access_key))?;
        }
        for (index, address) in self.addresses.iter().enumerate() {
            write!(formatter, "{}{address}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Options({self})")
    }
}

impl FromStr for Options {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Self, UrlError> {
        let mut options = Self::default();
        let rest = if let Some(rest) = strip_scheme(url, "rocketmqs://") {
            options.tls = Some(TlsOptions::default());
            rest
        } else {
            strip_scheme(url, "rocketmq://").ok_or(UrlError::Scheme)?
        };
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // Anything behind a slash means that the secret held a raw one: this is a part of it.
        if !path.is_empty() {
            return Err(UrlError::Path);
        }
        let addresses = match authority.rsplit_once('@') {
            Some((credentials, addresses)) => {
                let (access, secret) = credentials.split_once(':').ok_or(UrlError::Credentials)?;
                if access.is_empty() || secret.is_empty() {
                    return Err(UrlError::Credentials);
                }
                options.credentials = Some(Credentials {
                    access_key: decode(access, "access key")?,
                    secret_key: decode(secret, "secret key")?,
                });
                addresses
            }
            None => authority,
        };
        options.addresses = addresses.split(',').map(parse_address).collect::<Result<_, _>>()?;
        for pair in query.into_iter().flat_map(|query| query.split('&')).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            options.set(key, decode(value, "query")?)?;
        }
        Ok(options)
    }
}

fn parse_address(text: &str) -> Result<Address, UrlError> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or(UrlError::Host)?;
        host.parse::<std::net::Ipv6Addr>().map_err(|_| UrlError::Host)?;
        match rest.strip_prefix(':') {
            Some(port) => (host.to_owned(), Some(port)),
            None if rest.is_empty() => (host.to_owned(), None),
            None => return Err(UrlError::Host),
        }
    } else {
        let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_name) {
            return Err(UrlError::Host);
        }
        (host.to_owned(), port)
    };
    let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| UrlError::Port))?;
    if port == 0 { Err(UrlError::Port) } else { Ok(Address { host, port }) }
}

fn strip_scheme<'a>(url: &'a str, scheme: &str) -> Option<&'a str> {
    let start = url.get(..scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then(|| &url[scheme.len()..])
}

fn seconds(key: &'static str, value: String) -> Result<Duration, UrlError> {
    match value.parse::<u16>() {
        Ok(number) if number > 0 => Ok(Duration::from_secs(number.into())),
        _ => {
            // Anything but a number may be the rest of a secret with a raw question mark.
            let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            Err(UrlError::Value { key, value: if is_number { value } else { "(no number)".to_owned() } })
        }
    }
}

fn decode(text: &str, part: &'static str) -> Result<String, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first == b'%' {
            let (digits, tail) = tail.split_at_checked(2).ok_or(UrlError::Encoding(part))?;
            let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(UrlError::Encoding(part));
            let value = digit(digits[0])? * 16 + digit(digits[1])?;
            bytes.push(u8::try_from(value).map_err(|_| UrlError::Encoding(part))?);
            rest = tail;
        } else {
            bytes.push(first);
        }
    }
    String::from_utf8(bytes).map_err(|_| UrlError::Encoding(part))
}

/// Percent-encodes what is not plain.
struct Encoded<'a>(&'a str);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                write!(formatter, "{}", char::from(byte))?;
            } else {
                write!(formatter, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
