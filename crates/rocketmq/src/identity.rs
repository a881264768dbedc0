//! Who calls: the headers every call carries.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tonic::Request;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};

use crate::credentials::Credentials;
use crate::error::StartError;
use crate::generated::messages::{Language, Resource, Ua};
use crate::options::Options;
use crate::signature::hmac_sha1;

/// The protocol generation this client speaks as. Proxies compare it with 5.0.3 to choose between two error codes
/// (`ReceiveMessageActivity` of apache/rocketmq).
const CLIENT_VERSION: &str = "5.1.0";
/// A language name the proxy's own enumeration knows; another one fails the termination call.
const LANGUAGE: &str = "RUST";

/// Who calls.
pub(crate) struct Identity {
    client_id: String,
    credentials: Option<Credentials>,
    namespace: String,
    fixed: MetadataMap,
}

impl Identity {
    /// An identity with a client id of its own, unique to this client object: proxies keep settings and the telemetry
    /// stream under it.
    pub(crate) fn new(options: &Options) -> Result<Self, StartError> {
        let mut random = [0; 8];
        getrandom::fill(&mut random)
            .map_err(|error| StartError::Invalid(format!("the system gives no random numbers: {error}")))?;
        let client_id = format!("consign@{}@{}", std::process::id(), upper_hex(&random));
        let mut fixed = MetadataMap::new();
        let text = |what: &str, value: &str| {
            value.parse::<AsciiMetadataValue>().map_err(|_| {
                StartError::Invalid(format!("{what} has characters that a header cannot carry, use ascii"))
            })
        };
        fixed.insert("x-mq-client-id", text("client id", &client_id)?);
        fixed.insert("x-mq-language", AsciiMetadataValue::from_static(LANGUAGE));
        fixed.insert("x-mq-client-version", AsciiMetadataValue::from_static(CLIENT_VERSION));
        fixed.insert("x-mq-protocol", AsciiMetadataValue::from_static("v2"));
        if !options.namespace.is_empty() {
            fixed.insert("x-mq-namespace", text("namespace", &options.namespace)?);
        }
        if let Some(credentials) = &options.credentials {
            text("access key", &credentials.access_key)?;
        }
        let (credentials, namespace) = (options.credentials.clone(), options.namespace.clone());
        Ok(Self { client_id, credentials, namespace, fixed })
    }

    pub(crate) fn client_id(&self) -> &str {
        &self.client_id
    }

    /// A topic or group in the namespace of this client.
    pub(crate) fn resource(&self, name: &str) -> Resource {
        Resource { resource_namespace: self.namespace.clone(), name: name.to_owned() }
    }

    pub(crate) fn user_agent() -> Ua {
        Ua {
            language: Language::Rust.into(),
            version: CLIENT_VERSION.to_owned(),
            platform: std::env::consts::OS.to_owned(),
            hostname: String::new(),
        }
    }

    /// A request with the headers of this moment. The server is told the deadline: it needs one to judge polling times.
    pub(crate) fn request<Q>(&self, message: Q, deadline: Option<Instant>) -> Request<Q> {
        let mut headers = self.fixed.clone();
        let date = stamp(since_1970());
        if let Some(credentials) = &self.credentials
            && let Ok(value) = authorization(credentials, &date).parse::<AsciiMetadataValue>()
        {
            headers.insert("authorization", value);
        }
        if let Ok(value) = date.parse::<AsciiMetadataValue>() {
            headers.insert("x-mq-date-time", value);
        }
        let mut request = Request::new(message);
        *request.metadata_mut() = headers;
        if let Some(deadline) = deadline {
            request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        }
        request
    }
}

/// The value of the `authorization` header, as the `Signature` of apache/rocketmq-clients makes it.
fn authorization(credentials: &Credentials, date: &str) -> String {
    let signature = upper_hex(&hmac_sha1(credentials.secret_key.as_bytes(), date.as_bytes()));
    let access_key = &credentials.access_key;
    format!("MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders=x-mq-date-time, Signature={signature}")
}

pub(crate) fn upper_hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02X}").expect("a string takes everything");
        text
    })
}

/// The protocol signs the date, and wants to know when a message was born: two places that need a wall clock, and
/// nothing is decided by it here.
#[expect(clippy::disallowed_methods, reason = "the protocol's headers carry the date of this machine")]
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// The date as `yyyyMMdd'T'HHmmss'Z'`, UTC.
fn stamp(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Year, month and day of a count of days since 1970-01-01 (Howard Hinnant's `civil_from_days`, for days after 1970).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_is_the_date_in_utc() {
        for (seconds, date) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (1_764_633_599, "20251201T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(stamp(Duration::from_secs(seconds)), date);
        }
    }

    /// The value was computed with another implementation of HMAC-SHA1.
    #[test]
    fn authorization_signs_the_date_with_the_secret() {
        let credentials =
            Credentials { access_key: "app".to_owned(), secret_key: "what do ya want".to_owned() };

        assert_eq!(
            authorization(&credentials, "20251201T235959Z"),
            "MQv2-HMAC-SHA1 Credential=app, SignedHeaders=x-mq-date-time, \
             Signature=BB463EAB4DF60E8D2E40F2DCD7088A7D9040AFE4"
        );
    }

    #[test]
    fn namespace_no_header_can_carry_is_refused() {
        let options = Options { namespace: "a\nb".to_owned(), ..Options::default() };

        assert!(matches!(Identity::new(&options), Err(StartError::Invalid(_))));
    }
}
