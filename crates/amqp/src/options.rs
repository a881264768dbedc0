//! How to reach a broker: the URI, credentials, TLS and the values proposed to the server.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

const QUERY_KEYS: &str = "heartbeat, connection_timeout, frame_max, channel_max, cacertfile, certfile, keyfile, \
                          server_name_indication, connection_name";

/// Smallest frame size every peer must accept.
pub(crate) const FRAME_MIN: u32 = 4096;

/// A text that is not an AMQP URI, or one whose values do not fit. Never contains the password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriError {
    /// Another scheme, or none.
    #[error("an amqp uri starts with amqp:// or amqps://")]
    Scheme,
    /// The host part is missing or malformed.
    #[error(
        "the host of the amqp uri is malformed, write amqp://host:port/vhost with ipv6 addresses in brackets"
    )]
    Host,
    /// The port is not a number from 1 to 65535.
    #[error("the port of the amqp uri is not a number from 1 to 65535")]
    Port,
    /// A `%` that two hexadecimal digits do not follow, or bytes that are not UTF-8.
    #[error("the {0} of the amqp uri is not percent-encoded utf-8")]
    Encoding(&'static str),
    /// More than one path segment, or a raw `@`.
    #[error("the virtual host of the amqp uri, or its password, contains a raw slash or @, write %2F or %40")]
    VirtualHost,
    /// A query key nobody knows. Shown only if it looks like a key: it may be the rest of a password
    /// with a raw question mark.
    #[error("query key {0:?} of the amqp uri is unknown, known are {QUERY_KEYS}")]
    UnknownKey(String),
    /// A query value that is not a number in the allowed range.
    #[error("query value {key}={value} of the amqp uri must be a whole number from {low} to {high}")]
    Value {
        /// The query key.
        key: &'static str,
        /// The value as given, when it is a number: it may be the rest of a password with a raw question mark.
        value: String,
        /// Smallest allowed value.
        low: u32,
        /// Largest allowed value.
        high: u32,
    },
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
    /// Name to verify in the server certificate, when it differs from the host.
    pub server_name: Option<String>,
}

/// Everything needed to open a connection. `Debug` and `Display` never show the password.
///
/// ```
/// use consign_amqp::ConnectOptions;
///
/// let options: ConnectOptions = "amqp://app:s3cret@mq.example:5672/orders?heartbeat=20".parse()?;
/// assert_eq!(options.virtual_host, "orders");
/// assert_eq!(options.to_string(), "amqp://app:***@mq.example:5672/orders");
/// # Ok::<(), consign_amqp::UriError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// User name.
    pub user: String,
    /// Password.
    pub password: String,
    /// Virtual host.
    pub virtual_host: String,
    /// TLS settings; `None` means a plain connection. There is no fallback from one to the other.
    pub tls: Option<TlsOptions>,
    /// Heartbeat interval proposed to the server, in whole seconds; zero proposes none.
    pub heartbeat: Duration,
    /// Time for the whole of resolving, connecting, TLS and the AMQP handshake.
    pub connection_timeout: Duration,
    /// Largest frame proposed, in bytes, at least 4096.
    pub frame_max: u32,
    /// Largest channel number proposed, at least 1.
    pub channel_max: u16,
    /// The `connection_name` shown in the broker's management tools.
    pub connection_name: Option<String>,
    /// Incarnation number of the connection; `None` takes the next of a process-wide counter.
    pub incarnation: Option<u64>,
}

/// The name of [`ConnectOptions`] where only the address matters.
pub type Uri = ConnectOptions;

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            host: "localhost".to_owned(),
            port: 5672,
            user: "guest".to_owned(),
            password: "guest".to_owned(),
            virtual_host: "/".to_owned(),
            tls: None,
            heartbeat: Duration::from_secs(10),
            connection_timeout: Duration::from_secs(10),
            frame_max: 131_072,
            channel_max: 2047,
            connection_name: None,
            incarnation: None,
        }
    }
}

impl ConnectOptions {
    fn write_redacted(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "amqps" } else { "amqp" };
        let (user, vhost) = (Encoded(&self.user), Encoded(&self.virtual_host));
        if self.host.contains(':') {
            write!(formatter, "{scheme}://{user}:***@[{}]:{}/{vhost}", self.host, self.port)
        } else {
            write!(formatter, "{scheme}://{user}:***@{}:{}/{vhost}", self.host, self.port)
        }
    }

    fn set(&mut self, key: &str, value: String) -> Result<(), UriError> {
        let seconds = |key, value| Ok(Duration::from_secs(u64::from(number(key, value, 0, 65_535)?)));
        match key {
            "heartbeat" => self.heartbeat = seconds("heartbeat", value)?,
            "connection_timeout" => {
                let value = number("connection_timeout", value, 1, 65_535)?;
                self.connection_timeout = Duration::from_secs(u64::from(value));
            }
            "frame_max" => self.frame_max = number("frame_max", value, FRAME_MIN, u32::MAX)?,
            "channel_max" => {
                let value = number("channel_max", value, 1, u32::from(u16::MAX))?;
                self.channel_max = u16::try_from(value).unwrap_or(u16::MAX);
            }
            "cacertfile" => self.tls().ca_file = Some(value.into()),
            "certfile" => self.tls().client_cert = Some(value.into()),
            "keyfile" => self.tls().client_key = Some(value.into()),
            "server_name_indication" => self.tls().server_name = Some(value),
            "connection_name" => self.connection_name = Some(value),
            other => {
                let is_key = other.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
                return Err(UriError::UnknownKey(if is_key { other } else { "..." }.to_owned()));
            }
        }
        Ok(())
    }

    fn tls(&mut self) -> &mut TlsOptions {
        self.tls.get_or_insert_default()
    }
}

impl fmt::Display for ConnectOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_redacted(formatter)
    }
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ConnectOptions(")?;
        self.write_redacted(formatter)?;
        formatter.write_str(")")
    }
}

impl FromStr for ConnectOptions {
    type Err = UriError;

    fn from_str(uri: &str) -> Result<Self, UriError> {
        let mut options = Self::default();
        let rest = if let Some(rest) = strip_scheme(uri, "amqps://") {
            options.tls = Some(TlsOptions::default());
            options.port = 5671;
            rest
        } else {
            strip_scheme(uri, "amqp://").ok_or(UriError::Scheme)?
        };
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (authority, path) = rest.split_once('/').map_or((rest, None), |(rest, path)| (rest, Some(path)));
        let address = match authority.rsplit_once('@') {
            Some((credentials, address)) => {
                let (user, password) = credentials
                    .split_once(':')
                    .map_or((credentials, None), |(user, word)| (user, Some(word)));
                options.user = decode(user, "user")?;
                options.password = decode(password.unwrap_or_default(), "password")?;
                address
            }
            None => authority,
        };
        options.parse_address(address)?;
        if let Some(path) = path {
            // A raw `@` means that the password held a raw slash: this is a part of it, not a name.
            if path.contains(['/', '@']) {
                return Err(UriError::VirtualHost);
            }
            // `amqp://host/` names the empty virtual host by the letter of the specification; every
            // other tool and its users mean the default one.
            if !path.is_empty() {
                options.virtual_host = decode(path, "virtual host")?;
            }
        }
        let plain = options.tls.is_none();
        for pair in query.into_iter().flat_map(|query| query.split('&')).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            options.set(key, decode(value, "query")?)?;
            if plain && options.tls.is_some() {
                // A TLS key on amqp:// is a mistake that must not end in a plain connection.
                return Err(UriError::Scheme);
            }
        }
        Ok(options)
    }
}

impl ConnectOptions {
    fn parse_address(&mut self, address: &str) -> Result<(), UriError> {
        let (host, port) = if let Some(rest) = address.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').ok_or(UriError::Host)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| UriError::Host)?;
            match rest.strip_prefix(':') {
                Some(port) => (host.to_owned(), Some(port)),
                None if rest.is_empty() => (host.to_owned(), None),
                None => return Err(UriError::Host),
            }
        } else {
            let (host, port) =
                address.split_once(':').map_or((address, None), |(host, port)| (host, Some(port)));
            (decode(host, "host")?, port)
        };
        if !host.is_empty() {
            self.host = host;
        } else if port.is_some() || address.is_empty() {
            return Err(UriError::Host);
        }
        if let Some(port) = port {
            self.port = port.parse().ok().filter(|port| *port != 0).ok_or(UriError::Port)?;
        }
        Ok(())
    }
}

fn strip_scheme<'a>(uri: &'a str, scheme: &str) -> Option<&'a str> {
    let start = uri.get(..scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then(|| &uri[scheme.len()..])
}

fn number(key: &'static str, value: String, low: u32, high: u32) -> Result<u32, UriError> {
    match value.parse::<u32>() {
        Ok(number) if (low..=high).contains(&number) => Ok(number),
        _ => {
            // Anything but a number may be the rest of a password with a raw question mark.
            let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let value = if is_number { value } else { "(no number)".to_owned() };
            Err(UriError::Value { key, value, low, high })
        }
    }
}

fn decode(text: &str, part: &'static str) -> Result<String, UriError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'%' {
            let (digits, tail) = tail.split_at_checked(2).ok_or(UriError::Encoding(part))?;
            let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(UriError::Encoding(part));
            let value = digit(digits[0])? * 16 + digit(digits[1])?;
            bytes.push(u8::try_from(value).map_err(|_| UriError::Encoding(part))?);
            rest = tail;
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).map_err(|_| UriError::Encoding(part))
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
mod tests {
    use super::*;

    fn parse(uri: &str) -> Result<ConnectOptions, UriError> {
        uri.parse()
    }

    #[test]
    fn every_part_is_percent_decoded() {
        let options =
            parse("amqp://us%3Aer:p%40ss%2F@mq.example:5673/a%2Fb?heartbeat=7&frame_max=8192").unwrap();
        assert_eq!(options.user, "us:er");
        assert_eq!(options.password, "p@ss/");
        assert_eq!((options.host.as_str(), options.port), ("mq.example", 5673));
        assert_eq!(options.virtual_host, "a/b");
        assert_eq!(options.heartbeat, Duration::from_secs(7));
        assert_eq!(options.frame_max, 8192);
    }

    #[test]
    fn missing_parts_take_the_defaults() {
        let options = parse("amqp://mq").unwrap();
        assert_eq!(options, ConnectOptions { host: "mq".into(), ..ConnectOptions::default() });
        assert_eq!(parse("amqp://mq/").unwrap().virtual_host, "/");
        assert_eq!(parse("AMQPS://mq").unwrap().port, 5671);
    }

    #[test]
    fn ipv6_hosts_stand_in_brackets() {
        let options = parse("amqp://[::1]:1234/x").unwrap();
        assert_eq!((options.host.as_str(), options.port), ("::1", 1234));
        assert_eq!(options.to_string(), "amqp://guest:***@[::1]:1234/x");
        assert_eq!(parse("amqp://[::1"), Err(UriError::Host));
        assert_eq!(parse("amqp://[nope]"), Err(UriError::Host));
    }

    #[test]
    fn wrong_uris_are_refused() {
        assert_eq!(parse("http://mq"), Err(UriError::Scheme));
        assert_eq!(parse("amqp://"), Err(UriError::Host));
        assert_eq!(parse("amqp://mq:0"), Err(UriError::Port));
        assert_eq!(parse("amqp://mq:99999"), Err(UriError::Port));
        assert_eq!(parse("amqp://mq/a/b"), Err(UriError::VirtualHost));
        assert_eq!(parse("amqp://mq/%zz"), Err(UriError::Encoding("virtual host")));
        assert_eq!(parse("amqp://mq/v?hearbeat=1"), Err(UriError::UnknownKey("hearbeat".into())));
        assert!(matches!(parse("amqp://mq/v?frame_max=100"), Err(UriError::Value { key: "frame_max", .. })));
        assert_eq!(parse("amqp://mq/v?cacertfile=x.pem"), Err(UriError::Scheme));
    }

    #[test]
    fn password_with_a_raw_question_mark_is_not_shown_as_the_value_of_a_query() {
        let error = parse("amqp://guest:pass?heartbeat=10:s3cr3t@mq/v").unwrap_err();
        assert!(!error.to_string().contains("s3cr3t"), "{error}");
        assert!(parse("amqp://mq/v?heartbeat=70000").unwrap_err().to_string().contains("70000"));
    }

    /// `B88` (wagslane/go-rabbitmq#190, redpanda-data/connect#111): passwords in logged URLs.
    #[test]
    fn password_never_shows_in_debug_or_display() {
        let options = parse("amqp://u:s3cr3t%40@mq:5672/v").unwrap();
        for shown in [options.to_string(), format!("{options:?}"), format!("{options:#?}")] {
            assert!(!shown.contains("s3cr3t"), "{shown}");
            assert!(shown.contains("u:***@mq:5672/v"), "{shown}");
        }
        for uri in [
            "amqp://u:s3cr3t@mq:5672x/v",
            "amqp://u:12/s3cr3t@mq",
            "amqp://u:12?s3cr3t@mq/v",
            "amqp://u:s3cr3t%@mq",
            "amqp:/u:s3cr3t@mq",
        ] {
            let error = parse(uri).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error}");
        }
    }
}
