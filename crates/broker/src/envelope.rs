//! What every copy of an event carries beside its payload: text headers only, since streams and other protocols
//! have no equivalent for nested values.

use consign_core::event::{Event, Headers};

/// The business key, so that a consumer need not parse the payload for it.
pub const BUSINESS_KEY: &str = "consign-business-key";
/// The kind of thing the event is about.
pub const AGGREGATE_TYPE: &str = "consign-aggregate-type";
/// Which thing the event is about.
pub const AGGREGATE_ID: &str = "consign-aggregate-id";
/// The thing's version after the event, in decimal.
pub const AGGREGATE_VERSION: &str = "consign-aggregate-version";
/// `1` when the payload is an SQL `NULL`; an empty payload has no such header.
pub const NULL_PAYLOAD: &str = "consign-null";
/// What the names of CloudEvents attributes begin with.
pub const CLOUD_EVENTS_PREFIX: &str = "cloudEvents:";

/// The event's own headers followed by consign's and by the CloudEvents attributes of the binary mode.
///
/// A producer's header under one of consign's names is left out: consumers rely on what consign computed.
/// CloudEvents demands a non-empty type, so an event without one carries no CloudEvents attributes.
pub fn headers(event: &Event, source: &str) -> Headers {
    let computed = computed(event, source);
    let free = |name: &str| computed.iter().all(|(taken, _)| *taken != name);
    let mut headers: Headers = event.headers.iter().filter(|(name, _)| free(name)).cloned().collect();
    headers.extend(computed.into_iter().map(|(name, value)| (name.to_owned(), value)));
    headers
}

fn computed(event: &Event, source: &str) -> Vec<(&'static str, String)> {
    let mut computed = Vec::with_capacity(11);
    let mut put = |name, value: Option<String>| {
        if let Some(value) = value {
            computed.push((name, value));
        }
    };
    put(BUSINESS_KEY, event.business_key.clone());
    put(AGGREGATE_TYPE, event.aggregate.kind.clone());
    put(AGGREGATE_ID, event.aggregate.id.clone());
    put(AGGREGATE_VERSION, event.aggregate.version.map(|version| version.to_string()));
    put(NULL_PAYLOAD, event.payload.is_none().then(|| "1".to_owned()));
    if !event.event_type.is_empty() {
        put("cloudEvents:specversion", Some("1.0".to_owned()));
        put("cloudEvents:id", Some(event.id.as_str().to_owned()));
        put("cloudEvents:type", Some(event.event_type.clone()));
        put("cloudEvents:source", Some(source.to_owned()));
        put("cloudEvents:subject", event.aggregate.id.clone().filter(|id| !id.is_empty()));
        put("cloudEvents:time", event.created_at_micros.map(rfc3339));
    }
    computed
}

/// Microseconds since the Unix epoch as `2026-12-02T03:54:00.000001Z`.
fn rfc3339(micros: i64) -> String {
    const MICROS_PER_DAY: i64 = 86_400_000_000;
    let (days, rest) = (micros.div_euclid(MICROS_PER_DAY), micros.rem_euclid(MICROS_PER_DAY));
    let (year, month, day) = civil(days);
    let (seconds, micros) = (rest / 1_000_000, rest % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Year, month and day of a day number counted from 1970-01-01, in the proleptic Gregorian calendar.
///
/// Years are counted from 1 March, so that the leap day is the last of its year; an era is 400 years.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use consign_core::event::{Aggregate, EventId};

    use super::*;

    fn event() -> Event {
        Event {
            id: EventId::stored("e-1"),
            aggregate: Aggregate { kind: Some("order".into()), id: Some("42".into()), version: Some(3) },
            event_type: "OrderPaid".into(),
            business_key: Some("order:42:paid".into()),
            payload: Some("{}".into()),
            headers: vec![("traceparent".into(), "00-ab-cd-01".into())],
            destination: None,
            route_key: None,
            created_at_micros: Some(1_709_210_096_789_012),
        }
    }

    fn value<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
        headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn an_event_carries_its_aggregate_key_and_cloudevents_attributes() {
        let headers = headers(&event(), "shop");

        assert_eq!(headers[0], ("traceparent".to_owned(), "00-ab-cd-01".to_owned()));
        assert_eq!(value(&headers, BUSINESS_KEY), Some("order:42:paid"));
        assert_eq!(value(&headers, AGGREGATE_TYPE), Some("order"));
        assert_eq!(value(&headers, AGGREGATE_ID), Some("42"));
        assert_eq!(value(&headers, AGGREGATE_VERSION), Some("3"));
        assert_eq!(value(&headers, NULL_PAYLOAD), None);
        assert_eq!(value(&headers, "cloudEvents:id"), Some("e-1"));
        assert_eq!(value(&headers, "cloudEvents:source"), Some("shop"));
        assert_eq!(value(&headers, "cloudEvents:subject"), Some("42"));
        assert_eq!(value(&headers, "cloudEvents:time"), Some("2024-02-29T12:34:56.789012Z"));
    }

    /// `B57` (DBZ-6760, DBZ-5654): NULL and empty payloads are told apart.
    #[test]
    fn only_a_null_payload_is_marked_as_null() {
        let null = Event { payload: None, ..event() };
        let empty = Event { payload: Some(bytes::Bytes::new()), ..event() };

        assert_eq!(value(&headers(&null, "shop"), NULL_PAYLOAD), Some("1"));
        assert_eq!(value(&headers(&empty, "shop"), NULL_PAYLOAD), None);
    }

    #[test]
    fn a_producer_cannot_shadow_what_consign_computed() {
        let forged = Event { headers: vec![(BUSINESS_KEY.into(), "other".into())], ..event() };

        let headers = headers(&forged, "shop");

        let keys: Vec<_> = headers.iter().filter(|(name, _)| name == BUSINESS_KEY).collect();
        assert_eq!(keys, [&(BUSINESS_KEY.to_owned(), "order:42:paid".to_owned())]);
    }

    #[test]
    fn dates_before_and_after_the_epoch_are_written_in_utc() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59.999999Z");
        assert_eq!(rfc3339(951_782_400_000_000), "2000-02-29T00:00:00.000000Z");
        assert_eq!(rfc3339(4_107_542_399_999_999), "2100-02-28T23:59:59.999999Z");
        assert_eq!(rfc3339(4_107_542_400_000_000), "2100-03-01T00:00:00.000000Z");
    }
}
