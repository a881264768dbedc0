//! How to reach Redis, and the bounds of what it may cost.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use redis::{Client, ConnectionAddr, IntoConnectionInfo, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

const PREFIX_BYTES_MAX: usize = 64;

/// Settings of a [`RedisFilter`](crate::RedisFilter). `Debug` does not show the URL, which may hold a password.
///
/// ```
/// use std::time::Duration;
/// use consign_filter::FilterOptions;
///
/// let options = FilterOptions::new("redis://app:s3cret@cache.example/", Duration::from_hours(72));
/// assert_eq!(options.deadline, Duration::from_millis(50));
/// assert!(!format!("{options:?}").contains("s3cret"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct FilterOptions {
    /// `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`; `rediss://` is TLS with the server's certificate verified.
    pub url: String,
    /// What every key in Redis begins with: 1 to 64 bytes of printable ASCII. Applications that share a server need one
    /// each.
    pub prefix: String,
    /// How long an operation is remembered, in whole seconds, rounded up. Not shorter than the longest retry plus the
    /// replay horizon, see [`check_ttl`](consign_core::filter::check_ttl).
    pub ttl: Duration,
    /// How long a call may take at most; then its answer is Unknown.
    pub deadline: Duration,
    /// PEM file with the certificate authorities to trust *instead of* the system's; only with `rediss://`.
    pub ca_file: Option<PathBuf>,
}

/// Why a filter cannot be made. Never contains the URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// Not a Redis URL.
    #[error(
        "the filter's url is not valid: write redis://USER:PASSWORD@HOST:PORT/DATABASE, or rediss:// for tls, and \
         percent-encode special characters of the password"
    )]
    Url,
    /// A URL that switches off the verification of certificates.
    #[error(
        "the filter's url ends in #insecure: certificates are always verified; name your authority by ca_file"
    )]
    Insecure,
    /// Certificate authorities for a connection that is not encrypted.
    #[error("the filter's ca_file is set, but its url is not encrypted: write rediss:// or remove ca_file")]
    Plain,
    /// Empty, too long, or not printable.
    #[error(
        "the filter's prefix {0:?} must be 1 to {PREFIX_BYTES_MAX} bytes of printable ascii without spaces"
    )]
    Prefix(String),
    /// Redis would forget at once.
    #[error("the filter's ttl is zero: set it to the longest retry plus the replay horizon, or more")]
    Ttl,
    /// Nothing would ever be answered.
    #[error("the filter's deadline is zero: set it to some milliseconds, 50 for instance")]
    Deadline,
    /// The file of certificate authorities cannot be used.
    #[error("the filter's ca_file {} is not usable: {reason}", file.display())]
    Authority {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl FilterOptions {
    /// The usual settings: prefix `consign`, a deadline of 50 ms, the system's certificate authorities.
    pub fn new(url: impl Into<String>, ttl: Duration) -> Self {
        Self {
            url: url.into(),
            prefix: "consign".into(),
            ttl,
            deadline: Duration::from_millis(50),
            ca_file: None,
        }
    }

    pub(crate) fn ttl_seconds(&self) -> u64 {
        self.ttl.as_secs().saturating_add(u64::from(self.ttl.subsec_nanos() > 0))
    }

    /// Checks everything that can be checked without a connection.
    pub(crate) fn client(&self) -> Result<Client, FilterError> {
        let printable = self.prefix.bytes().all(|byte| byte.is_ascii_graphic());
        if self.prefix.is_empty() || self.prefix.len() > PREFIX_BYTES_MAX || !printable {
            return Err(FilterError::Prefix(self.prefix.clone()));
        }
        if self.ttl.is_zero() {
            return Err(FilterError::Ttl);
        }
        if self.deadline.is_zero() {
            return Err(FilterError::Deadline);
        }
        // What the client library says of a bad URL is dropped, as it may quote parts of it.
        let server = self.url.as_str().into_connection_info().map_err(|_| FilterError::Url)?;
        // Introducing itself by name and version would cost another round trip per connection.
        let settings = server.redis_settings().clone().set_skip_set_lib_name();
        let server = server.set_redis_settings(settings);
        match server.addr() {
            ConnectionAddr::TcpTls { insecure: true, .. } => Err(FilterError::Insecure),
            ConnectionAddr::TcpTls { .. } => {
                choose_cryptography();
                let certificates = TlsCertificates { client_tls: None, root_cert: self.authorities()? };
                Client::build_with_tls(server, certificates).map_err(|_| FilterError::Url)
            }
            _ if self.ca_file.is_some() => Err(FilterError::Plain),
            _ => Client::open(server).map_err(|_| FilterError::Url),
        }
    }

    /// The bytes of `ca_file`, which hold at least one certificate.
    fn authorities(&self) -> Result<Option<Vec<u8>>, FilterError> {
        let Some(file) = &self.ca_file else { return Ok(None) };
        let unusable = |reason: String| FilterError::Authority { file: file.clone(), reason };
        let pem = std::fs::read(file).map_err(|error| unusable(error.to_string()))?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        match certificates {
            Ok(certificates) if certificates.is_empty() => Err(unusable("it holds no certificate".into())),
            Ok(_) => Ok(Some(pem)),
            Err(error) => Err(unusable(error.to_string())),
        }
    }
}

/// The client library takes the process's choice and panics when there is none and the crates compiled in leave open
/// which it is; it cannot be told otherwise.
fn choose_cryptography() {
    if CryptoProvider::get_default().is_none() {
        // Somebody else may have chosen in between, which is as good.
        let _ = ring::default_provider().install_default();
    }
}

impl fmt::Debug for FilterOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url: _, prefix, ttl, deadline, ca_file } = self;
        formatter
            .debug_struct("FilterOptions")
            .field("prefix", prefix)
            .field("ttl", ttl)
            .field("deadline", deadline)
            .field("ca_file", ca_file)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn refused(change: impl FnOnce(&mut FilterOptions)) -> FilterError {
        let mut options = FilterOptions::new("redis://localhost/", DAY);
        change(&mut options);
        options.client().expect_err("the options are refused")
    }

    #[test]
    fn url_that_is_none_is_refused_without_showing_the_password() {
        for url in [
            "",
            "localhost:6379",
            "redis:app:s3cret@localhost",
            "http://app:s3cret@localhost",
            "redis://app:s3cret@localhost/s3cret",
            "redis://app:s3cret@/",
            "redis://app:s3cret@localhost:s3cret/",
            "redis://localhost/?protocol=s3cret",
        ] {
            let error = refused(|options| options.url = url.into());

            assert_eq!(error, FilterError::Url, "{url}");
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn certificates_cannot_be_left_unverified() {
        assert_eq!(
            refused(|options| options.url = "rediss://localhost/#insecure".into()),
            FilterError::Insecure
        );
    }

    #[test]
    fn authorities_for_a_plain_connection_are_refused() {
        assert_eq!(refused(|options| options.ca_file = Some("ca.pem".into())), FilterError::Plain);
    }

    #[test]
    fn url_with_user_database_and_tls_is_taken() {
        for url in ["redis://app:p%40ss@[::1]:6380/5", "rediss://cache.example", "unix:///run/redis.sock"] {
            assert!(FilterOptions::new(url, DAY).client().is_ok(), "{url}");
        }
    }

    #[test]
    fn prefix_that_is_empty_long_or_unprintable_is_refused() {
        for prefix in ["", "with space", "zeile\n", "ü", &"x".repeat(65)] {
            let error = refused(|options| options.prefix = prefix.into());

            assert_eq!(error, FilterError::Prefix(prefix.into()));
        }
    }

    #[test]
    fn zero_ttl_and_zero_deadline_are_refused() {
        assert_eq!(refused(|options| options.ttl = Duration::ZERO), FilterError::Ttl);
        assert_eq!(refused(|options| options.deadline = Duration::ZERO), FilterError::Deadline);
    }

    #[test]
    fn file_of_authorities_that_is_missing_or_holds_none_is_refused_by_name() {
        let empty = tempfile::NamedTempFile::new().unwrap();
        for file in [empty.path(), &empty.path().with_extension("missing")] {
            let error = refused(|options| {
                options.url = "rediss://localhost/".into();
                options.ca_file = Some(file.into());
            });

            assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
        }
    }

    #[test]
    fn ttl_is_rounded_up_to_whole_seconds() {
        let seconds = |ttl| FilterOptions::new("", ttl).ttl_seconds();

        assert_eq!(seconds(Duration::from_millis(1)), 1);
        assert_eq!(seconds(Duration::from_mins(1)), 60);
        assert_eq!(seconds(Duration::from_millis(60_001)), 61);
    }
}
