//! Nothing is forgotten while copies of it may still come: markers and the filter outlive the horizon.

use consign_store::retention::{AttemptLog, OnSent};

use super::*;

const DAY: Duration = Duration::from_hours(24);

#[test]
fn the_horizon_is_the_longest_publishing_consuming_and_replay() {
    let horizon = read(WHOLE).unwrap().horizon;

    assert_eq!(horizon.publishing, 20 * Duration::from_secs(300 + 30));
    assert_eq!(horizon.consuming, Duration::from_mins(5));
    assert_eq!(horizon.replay, 7 * DAY);
    assert_eq!(horizon.total(), horizon.publishing + horizon.consuming + horizon.replay);
}

#[test]
fn each_part_of_the_horizon_follows_its_settings() {
    let horizon = |from: &str, to: &str| read(&changed(from, to)).unwrap().horizon;
    let relay = |keys: &str| horizon("[[route]]", &format!("{keys}\n[[route]]"));
    let consumer = |keys: &str| horizon("key = \"order", &format!("{keys}\nkey = \"order")).consuming;

    assert_eq!(relay("[retry]\nattempts_max = 2").publishing, Duration::from_secs(900 + 330));
    assert_eq!(relay("[retry]\ncap_seconds = 1000").publishing, Duration::from_secs(20 * 1030));
    assert_eq!(relay("[relay]\nlease_seconds = 100").publishing, Duration::from_secs(20 * 400));
    assert_eq!(relay("[relay]\nsweep_delay_seconds = 1000").publishing, Duration::from_secs(20 * 1030));
    assert_eq!(consumer("attempts_max = 1000"), Duration::from_mins(1000));
    assert_eq!(consumer("retry_delay_seconds = 3600"), Duration::from_hours(5));
    let guard = "[consumer.guard]\nrule = \"sequential\"\naggregate = \"{order_id}\"\ngap_seconds = 3600\n";
    let gap = read(&format!("{WHOLE}{guard}")).unwrap().horizon.consuming;
    assert_eq!(gap, Duration::from_mins(5 + 60));
    assert_eq!(relay("[inbox]\nreplay_horizon_days = 30").replay, 30 * DAY);
}

#[test]
fn markers_are_kept_for_ever_unless_a_retention_is_written() {
    let whole = read(WHOLE).unwrap();
    let kept = read(&format!("{LEAST}[inbox]\nretention_days = 90\n")).unwrap();

    assert_eq!(whole.inbox.retention, None);
    assert_eq!(kept.inbox.retention, Some(90 * DAY));
}

#[test]
fn a_retention_below_the_horizon_is_refused_with_the_numbers() {
    let retention = |inbox: &str| mistakes(&format!("{WHOLE}[inbox]\n{inbox}\n"));

    assert_eq!(
        retention("retention_days = 7"),
        [
            "consign.toml:31: inbox.retention_days: 7 days are 604800 s, and copies of an event may come for 611700 s: \
             6600 s of publishing, 300 s of consuming and 604800 s of replay: raise it to 8 or more, or lower \
             replay_horizon_days"
        ]
    );
    assert!(retention("retention_days = 8").is_empty());
    assert!(retention("retention_days = 7\nreplay_horizon_days = 6").is_empty());
    assert_eq!(retention("retention_days = 0").len(), 1);
}

fn filtered(keys: &str) -> String {
    format!("{WHOLE}[filter]\ntype = \"redis\"\n{keys}\n")
}

#[test]
fn a_filter_is_read_with_its_defaults_and_remembers_for_the_horizon() {
    let config = read(&filtered("url = \"redis://app:s3cr3t@cache.example:6380/3\"")).unwrap();

    let filter = config.filter.unwrap();
    assert_eq!(filter.url.expose(), "redis://app:s3cr3t@cache.example:6380/3");
    assert_eq!((filter.prefix.as_str(), filter.timeout), ("consign", Duration::from_millis(50)));
    assert_eq!(filter.ttl, config.horizon.total());
    assert!(!format!("{filter:?}").contains("s3cr3t"));
    assert!(read(WHOLE).unwrap().filter.is_none());
}

#[test]
fn the_filter_s_password_may_come_from_the_environment() {
    let text = filtered("url = \"redis://:${CACHE_PASSWORD}@cache.example\"");

    let config = read_with(&text, &[("CACHE_PASSWORD", "p@ss/word")]).unwrap();

    assert_eq!(config.filter.unwrap().url.expose(), "redis://:p%40ss%2Fword@cache.example");
    assert_eq!(
        mistakes(&text),
        [
            "consign.toml:32: filter.url: uses ${CACHE_PASSWORD}, which the environment does not have: set CACHE_PASSWORD"
        ]
    );
}

#[test]
fn filters_that_cannot_work_are_refused() {
    let url = "url = \"redis://app:s3cr3t@cache.example\"";
    for (keys, mistake) in [
        ("", "filter.url: is missing: write url = \"redis://user@host:6379/0\""),
        (
            "url = \"http://app:s3cr3t@cache.example\"",
            "filter.url: scheme \"http\" is not known: use redis or rediss",
        ),
        (
            "url = \"redis://app:s3cr3t@cache.example/s3cr3t\"",
            "filter.url: names a database that is no number: write redis://user@host:6379/0",
        ),
        (
            "url = \"redis://cache.example/0?s3cr3t=s3cr3t\"",
            "filter.url: has a query, which is not used: remove the part from the ? on, and write a ? of the password as %3F",
        ),
        (
            &format!("{url}\nttl_seconds = 611699"),
            "filter.ttl_seconds: the filter's ttl of 611699 s is shorter than the longest retry plus replay horizon, 611700 s: set it to 611700 s or more",
        ),
        (&format!("{url}\nttl_seconds = 0"), "filter.ttl_seconds: 0 is out of range: use 1 to 3153600000"),
        (
            &format!("{url}\ntimeout_milliseconds = 0"),
            "filter.timeout_milliseconds: 0 is out of range: use 1 to 10000",
        ),
        (
            &format!("{url}\nprefix = \"a b\""),
            "filter.prefix: \"a b\" is not usable: write 1 to 64 characters of ASCII without spaces",
        ),
        (
            &format!("{url}\npassword_file = \"nowhere\""),
            "filter.password_file: /etc/consign/nowhere cannot be read: No such file or directory (os error 2)",
        ),
        (
            &format!("{url}\ntls_ca_file = \"nowhere.pem\""),
            "filter.tls_ca_file: /etc/consign/nowhere.pem is not a readable file: relative paths start at the config's folder",
        ),
    ] {
        let found = mistakes(&filtered(keys));

        assert!(found.iter().any(|found| found.ends_with(&format!(": {mistake}"))), "{mistake}\n{found:#?}");
        assert!(!found.concat().contains("s3cr3t"), "{found:#?}");
    }
    let kind = mistakes(&filtered(url).replace("\"redis\"", "\"redish\""));
    assert_eq!(kind, ["consign.toml:31: filter.type: \"redish\" is not known: did you mean \"redis\"?"]);
    assert!(mistakes(&filtered(&format!("{url}\ntls_ca_file = \"/dev/null\""))).len() > 1);
}

#[test]
fn sent_rows_are_kept_for_ever_unless_a_retention_is_written() {
    let whole = read(WHOLE).unwrap();
    let kept = read(&format!("{LEAST}[[outbox]]\nretention_days = 30\non_sent = \"delete\"\n")).unwrap();

    assert_eq!((whole.outboxes[0].retention, whole.outboxes[0].on_sent), (None, OnSent::Keep));
    assert_eq!((kept.outboxes[0].retention, kept.outboxes[0].on_sent), (Some(30 * DAY), OnSent::Delete));
}

#[test]
fn sent_rows_that_may_be_replayed_are_not_purged() {
    let found = |keys: &str| mistakes(&format!("{LEAST}{keys}"));

    assert_eq!(
        found("[[outbox]]\nretention_days = 6\n"),
        [
            "consign.toml:4: outbox[0].retention_days: 6 is less than replay_horizon_days, which is 7: a sent event that is \
             purged cannot be replayed; raise it to 7 or more, or lower replay_horizon_days"
        ]
    );
    assert!(found("[[outbox]]\nretention_days = 7\n").is_empty());
    assert!(found("[[outbox]]\nretention_days = 0\n\n[inbox]\nreplay_horizon_days = 0\n").is_empty());
}

#[test]
fn the_attempt_log_is_on_and_bounded_unless_written_otherwise() {
    let whole = read(WHOLE).unwrap();
    let other = read(&format!("{LEAST}[relay]\nattempt_log = \"failures\"\nattempt_days = 30\n")).unwrap();

    assert_eq!((whole.attempts.log, whole.attempts.retention), (AttemptLog::All, 7 * DAY));
    assert_eq!((other.attempts.log, other.attempts.retention), (AttemptLog::Failures, 30 * DAY));
    let wrong = mistakes(&format!("{LEAST}[relay]\nattempt_log = \"some\"\nattempt_days = 0\n"));
    assert_eq!(wrong.len(), 2, "{wrong:?}");
}
