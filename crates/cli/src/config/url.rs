//! Connection urls: split, percent-decoded, with `${NAME}` taken from the environment, and never shown with secrets.

use std::fmt::{self, Write};

use super::secret::Secret;

/// A connection url in its parts, all of them decoded. `Debug` and `Display` show neither password nor query.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectionUrl {
    /// The scheme in lower case, for instance `mysql` or `amqps`.
    pub scheme: String,
    /// The user.
    pub user: Option<String>,
    /// The password, from the url or from a password file.
    pub password: Option<Secret>,
    /// Host name or address; IPv6 addresses without brackets.
    pub host: String,
    /// The TCP port, when the url names one.
    pub port: Option<u16>,
    /// What follows the host: a database or a virtual host; `None` when nothing does.
    pub path: Option<String>,
    /// The query's keys and values.
    pub query: Vec<(String, String)>,
}

/// Why a url cannot be used. Holds no part of the url, since any part may hold the password when the url is malformed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidUrl {
    /// It has no `scheme://`.
    Scheme,
    /// The host is missing or malformed.
    Host,
    /// The port is not one.
    Port,
    /// A `%` without two hexadecimal digits, or bytes that are not UTF-8.
    Encoding,
    /// More than one path segment.
    Path,
    /// A `${` without a name and a `}`.
    Placeholder,
    /// The environment lacks the named variable.
    Unset(String),
}

impl fmt::Display for InvalidUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Scheme => "does not begin with scheme://: write scheme://user@host:port/name",
            Self::Host => {
                "has no usable host: write scheme://user@host:port/name, with IPv6 addresses in brackets and \
                 special characters of the password percent-encoded"
            }
            Self::Port => "has a port that is not a number from 1 to 65535",
            Self::Encoding => "is not valid percent-encoded UTF-8: write % itself as %25",
            Self::Path => "has a slash in the name after the host: write it as %2F",
            Self::Placeholder => "has a ${ that is not ${NAME}",
            Self::Unset(name) => {
                return write!(
                    formatter,
                    "uses ${{{name}}}, which the environment does not have: set {name}"
                );
            }
        })
    }
}

impl ConnectionUrl {
    /// Reads a url. `${NAME}` stands for an environment variable and may appear in any part after the scheme, its
    /// value taken as it is, without decoding; a text that is nothing but `${NAME}` is a whole url in a variable.
    ///
    /// # Errors
    /// The text is not a url with a host, or uses a variable that `variable` does not know.
    pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, InvalidUrl> {
        if let Some(name) = whole_placeholder(text) {
            let text = variable(name).ok_or_else(|| InvalidUrl::Unset(name.into()))?;
            return Self::parse_parts(&text, &|_| None);
        }
        Self::parse_parts(text, &variable)
    }

    fn parse_parts(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, InvalidUrl> {
        let read = |part: &str| read_part(part, variable);
        let (scheme, rest) = text.split_once("://").ok_or(InvalidUrl::Scheme)?;
        if scheme.is_empty() || !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+') {
            return Err(InvalidUrl::Scheme);
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains('/') {
            return Err(InvalidUrl::Path);
        }
        let (user, password, address) = match authority.rsplit_once('@') {
            None => (None, None, authority),
            Some((credentials, address)) => match credentials.split_once(':') {
                None => (Some(read(credentials)?), None, address),
                Some((user, password)) => (Some(read(user)?), Some(Secret::new(read(password)?)), address),
            },
        };
        let (host, port) = split_address(address)?;
        let port = match port.map(read).transpose()? {
            None => None,
            Some(port) => Some(port.parse().ok().filter(|port| *port != 0).ok_or(InvalidUrl::Port)?),
        };
        let host = read(host)?;
        if host.is_empty() || host.contains(['@', '/', '?', '#', ' ']) {
            return Err(InvalidUrl::Host);
        }
        let query = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((read(key)?, read(value)?))
        });
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            user: user.filter(|user| !user.is_empty()),
            password,
            host,
            port,
            path: Some(read(path)?).filter(|path| !path.is_empty()),
            query: query.collect::<Result<_, _>>()?,
        })
    }

    /// The whole url with its password, percent-encoded, for the client library that connects.
    pub fn expose(&self) -> String {
        let mut text = format!("{}://", self.scheme);
        if self.user.is_some() || self.password.is_some() {
            encode(self.user.as_deref().unwrap_or(""), &mut text);
            if let Some(password) = &self.password {
                text.push(':');
                encode(password.expose(), &mut text);
            }
            text.push('@');
        }
        self.write_address(&mut text);
        if let Some(path) = &self.path {
            text.push('/');
            encode(path, &mut text);
        }
        for (index, (key, value)) in self.query.iter().enumerate() {
            text.push(if index == 0 { '?' } else { '&' });
            encode(key, &mut text);
            text.push('=');
            encode(value, &mut text);
        }
        text
    }

    fn write_address(&self, text: &mut String) {
        if self.host.contains(':') {
            let _ = write!(text, "[{}]", self.host);
        } else {
            text.push_str(&self.host);
        }
        if let Some(port) = self.port {
            let _ = write!(text, ":{port}");
        }
    }
}

impl fmt::Display for ConnectionUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = format!("{}://", self.scheme);
        if let Some(user) = &self.user {
            encode(user, &mut text);
        }
        if self.password.is_some() {
            text.push_str(":***");
        }
        if self.user.is_some() || self.password.is_some() {
            text.push('@');
        }
        self.write_address(&mut text);
        if let Some(path) = &self.path {
            text.push('/');
            encode(path, &mut text);
        }
        formatter.write_str(&text)
    }
}

impl fmt::Debug for ConnectionUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ConnectionUrl({self})")
    }
}

fn whole_placeholder(text: &str) -> Option<&str> {
    let name = text.trim().strip_prefix("${")?.strip_suffix('}')?;
    is_variable_name(name).then_some(name)
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn split_address(address: &str) -> Result<(&str, Option<&str>), InvalidUrl> {
    let Some(rest) = address.strip_prefix('[') else {
        return Ok(address.split_once(':').map_or((address, None), |(host, port)| (host, Some(port))));
    };
    let (host, rest) = rest.split_once(']').ok_or(InvalidUrl::Host)?;
    host.parse::<std::net::Ipv6Addr>().map_err(|_| InvalidUrl::Host)?;
    match rest.strip_prefix(':') {
        Some(port) => Ok((host, Some(port))),
        None if rest.is_empty() => Ok((host, None)),
        None => Err(InvalidUrl::Host),
    }
}

/// Percent-decodes a part, and puts variables in as they are.
fn read_part(part: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, InvalidUrl> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part;
    while let Some(first) = rest.bytes().next() {
        if let Some(tail) = rest.strip_prefix("${") {
            let (name, tail) = tail.split_once('}').ok_or(InvalidUrl::Placeholder)?;
            if !is_variable_name(name) {
                return Err(InvalidUrl::Placeholder);
            }
            bytes.extend(variable(name).ok_or_else(|| InvalidUrl::Unset(name.into()))?.into_bytes());
            rest = tail;
        } else if first == b'%' {
            let digits = rest.get(1..3).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            bytes.push(byte.ok_or(InvalidUrl::Encoding)?);
            rest = &rest[3..];
        } else {
            let length = rest.chars().next().map_or(1, char::len_utf8);
            bytes.extend_from_slice(&rest.as_bytes()[..length]);
            rest = &rest[length..];
        }
    }
    String::from_utf8(bytes).map_err(|_| InvalidUrl::Encoding)
}

fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConnectionUrl, InvalidUrl> {
        ConnectionUrl::parse(text, |name| match name {
            "DB_PASSWORD" => Some("p@ss/%2f:word".into()),
            "DATABASE_URL" => Some("mysql://app:s3cr3t@db:3306/shop".into()),
            "DB_HOST" => Some("db.example".into()),
            _ => None,
        })
    }

    /// B88, wagslane/go-rabbitmq#190: a url type that prints its userinfo leaks it into logs.
    #[test]
    fn the_password_is_decoded_for_use_and_never_shown() {
        let url = parse("amqp://us%40er:s3cr3t%40%2F@mq:5672/%2f?heartbeat=10&password=s3cr3t").unwrap();

        assert_eq!(url.password.as_ref().map(Secret::expose), Some("s3cr3t@/"));
        assert_eq!(url.user.as_deref(), Some("us@er"));
        assert_eq!(url.path.as_deref(), Some("/"));
        assert_eq!(url.to_string(), "amqp://us%40er:***@mq:5672/%2F");
        assert!(!format!("{url:?} {url:#?}").contains("s3cr3t"));
        assert_eq!(url.expose(), "amqp://us%40er:s3cr3t%40%2F@mq:5672/%2F?heartbeat=10&password=s3cr3t");
    }

    #[test]
    fn variables_are_put_in_as_they_are_or_stand_for_the_whole_url() {
        let parts = parse("mysql://app:${DB_PASSWORD}@${DB_HOST}/shop").unwrap();
        let whole = parse("${DATABASE_URL}").unwrap();

        assert_eq!(parts.password.as_ref().map(Secret::expose), Some("p@ss/%2f:word"));
        assert_eq!(parts.host, "db.example");
        assert_eq!(whole.host, "db");
        assert_eq!(parse("mysql://app:${NOPE}@db/shop"), Err(InvalidUrl::Unset("NOPE".into())));
        assert_eq!(parse("${NOPE}"), Err(InvalidUrl::Unset("NOPE".into())));
        assert_eq!(parse("mysql://app:${X@db/shop"), Err(InvalidUrl::Placeholder));
    }

    #[test]
    fn what_is_not_a_url_is_refused_without_repeating_it() {
        for (text, problem) in [
            ("s3cr3t", InvalidUrl::Scheme),
            ("//app:s3cr3t@db", InvalidUrl::Scheme),
            ("mysql://", InvalidUrl::Host),
            ("mysql://app:s3cr3t@", InvalidUrl::Host),
            ("mysql://app:s3c/r3t@db/shop", InvalidUrl::Path),
            ("mysql://app:s3c?r3t@db/shop", InvalidUrl::Port),
            ("mysql://app:s3%cr3t@db/shop", InvalidUrl::Encoding),
            ("mysql://db:0/shop", InvalidUrl::Port),
            ("mysql://db:port/shop", InvalidUrl::Port),
            ("mysql://db/a/b", InvalidUrl::Path),
            ("mysql://[::1/shop", InvalidUrl::Host),
            ("mysql://[nope]/shop", InvalidUrl::Host),
        ] {
            let refused = parse(text).unwrap_err();

            assert!(!refused.to_string().contains("r3t"), "{refused}");
            assert_eq!(refused, problem, "{text}");
        }
    }

    #[test]
    fn addresses_of_every_kind_survive_the_round_trip() {
        for text in
            ["mysql://root@127.0.0.1:33006/points", "amqps://[::1]:5671", "amqp://mq", "mysql://a:@b/c"]
        {
            let url = parse(text).unwrap();

            assert_eq!(url.expose(), text);
            assert_eq!(parse(&url.expose()).unwrap(), url);
        }
    }
}
