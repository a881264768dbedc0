//! What a positive answer of this broker is worth, and what else its settings do to messages. Pure.

use consign_core::finding::Finding;
use consign_rocketmq::admin::{BrokerRuntime, BrokerSettings, ServerVersion};

/// The first release in which consumers neither read what is not flushed nor lose what they did not acknowledge.
const RELEASE_MIN: ServerVersion = ServerVersion { major: 5, minor: 3, patch: 0 };

/// Above this part of its disk a broker refuses every message. It can be told a lower one, never a higher one
/// (`getDiskSpaceWarningLevelRatio` of `DefaultMessageStore`).
const DISK_FULL: f64 = 0.90;
/// Above this one it deletes its oldest messages, whether they were consumed or not, unless it is told not to
/// (`getDiskSpaceCleanForciblyRatio` and `cleanFileForciblyEnable`).
const DISK_CLEANED: f64 = 0.85;

/// Everything that the settings, the release and the disk say about messages.
pub(super) fn judge(broker: &str, settings: &BrokerSettings, runtime: BrokerRuntime) -> Vec<Finding> {
    let subject = format!("broker {broker:?}");
    let mut findings = vec![release(&subject, runtime.version), durability(&subject, settings)];
    findings.extend(runtime.disk_used.and_then(|used| disk(&subject, settings, used)));
    if settings.flag("enablePopBufferMerge") != Some(true) {
        findings.push(Finding::warning(
            "pop-redelivery",
            subject.as_str(),
            "enablePopBufferMerge is off: when a consumer dies or its connection breaks, the proxy gives back what its \
             polls bring in the millisecond it was taken, and the broker loses such a message",
            "set enablePopBufferMerge=true at the broker",
        ));
    }
    if settings.flag("autoCreateTopicEnable") != Some(false) {
        findings.push(Finding::warning(
            "topic-auto-create",
            subject.as_str(),
            "autoCreateTopicEnable is on: a mistyped topic is created instead of reported, on one broker and of \
             kind NORMAL",
            "set autoCreateTopicEnable=false and create topics with consign topology apply",
        ));
    }
    if settings.flag("autoCreateSubscriptionGroup") != Some(false) {
        findings.push(Finding::warning(
            "group-auto-create",
            subject,
            "autoCreateSubscriptionGroup is on: a mistyped group is created instead of reported, without order and with \
             16 retries",
            "set autoCreateSubscriptionGroup=false and create groups with consign topology apply",
        ));
    }
    findings
}

/// What a disk that fills up does to messages.
fn disk(subject: &str, settings: &BrokerSettings, used: f64) -> Option<Finding> {
    let percent = format!("{:.0} % of the disk of the commit log is used", used * 100.0);
    if used > DISK_FULL {
        Some(Finding::error(
            "broker-disk-full",
            subject,
            format!("{percent}: the broker refuses every message, and events wait in their table"),
            "make room on the broker's disk, or lower fileReservedTime",
        ))
    } else if used > DISK_CLEANED {
        let deletes = match settings.flag("cleanFileForciblyEnable") {
            Some(false) => "",
            Some(true) | None => "the broker deletes its oldest messages, consumed or not; ",
        };
        Some(Finding::warning(
            "broker-disk",
            subject,
            format!("{percent}: {deletes}above {:.0} % the broker refuses every message", DISK_FULL * 100.0),
            "make room on the broker's disk, or lower fileReservedTime",
        ))
    } else {
        None
    }
}

fn release(subject: &str, version: Option<ServerVersion>) -> Finding {
    match version {
        Some(version) if version >= RELEASE_MIN => {
            Finding::fine("broker-version", subject, format!("RocketMQ {version}"))
        }
        Some(version) => Finding::error(
            "broker-old",
            subject,
            format!(
                "RocketMQ {version} can lose messages: before {RELEASE_MIN}, queues roll back behind consumers after \
                 a crash (apache/rocketmq#8239) and unacknowledged messages vanish on their way to the retry topic \
                 (apache/rocketmq#7914)"
            ),
            format!("upgrade to {RELEASE_MIN} or later"),
        ),
        None => Finding::warning(
            "broker-version-unknown",
            subject,
            "the broker does not tell its release",
            format!("make sure that it is RocketMQ {RELEASE_MIN} or later"),
        ),
    }
}

/// On how many disks, or in how many memories, a message is when the broker answers SEND_OK.
fn durability(subject: &str, settings: &BrokerSettings) -> Finding {
    let on_disk = settings.text("flushDiskType") == Some("SYNC_FLUSH");
    let role = settings.text("brokerRole").unwrap_or("ASYNC_MASTER");
    let replicas = replicas_waited_for(role, settings);
    let flush = settings.text("flushDiskType").unwrap_or("ASYNC_FLUSH");
    let found = format!(
        "flushDiskType={flush}, brokerRole={role}, inSyncReplicas={}",
        settings.text("inSyncReplicas").unwrap_or("1")
    );
    let role_note = if role == "SYNC_MASTER" && !replicas {
        " (SYNC_MASTER waits for nobody while inSyncReplicas is 1)"
    } else {
        ""
    };
    match (on_disk, replicas) {
        (true, true) => Finding::fine(
            "broker-durable",
            subject,
            format!("{found}: SEND_OK is the disk of this broker and a replica"),
        ),
        (true, false) => Finding::warning(
            "broker-not-replicated",
            subject,
            format!(
                "{found}: SEND_OK is the disk of one node, and a lost disk loses confirmed messages{role_note}"
            ),
            "set brokerRole=SYNC_MASTER and inSyncReplicas=2 with a replica",
        ),
        (false, true) => Finding::warning(
            "broker-not-flushed",
            subject,
            format!(
                "{found}: SEND_OK is the memory of this broker and a replica, and losing power on both loses \
                 confirmed messages"
            ),
            "set flushDiskType=SYNC_FLUSH",
        ),
        (false, false) => Finding::warning(
            "broker-not-durable",
            subject,
            format!(
                "{found}: SEND_OK is the page cache of one node, and losing power loses confirmed \
                 messages{role_note}"
            ),
            "set flushDiskType=SYNC_FLUSH, or brokerRole=SYNC_MASTER and inSyncReplicas=2 with a replica; or keep \
             SENT events long enough for consign replay",
        ),
    }
}

/// Whether an answer waits for a replica: the role alone does not say so.
fn replicas_waited_for(role: &str, settings: &BrokerSettings) -> bool {
    let replicated_log = settings.flag("enableDLegerCommitLog") == Some(true);
    let all_in_sync = settings.flag("enableControllerMode") == Some(true)
        && settings.flag("allAckInSyncStateSet") == Some(true);
    let several = settings.number("inSyncReplicas").is_some_and(|replicas| replicas > 1);
    replicated_log || (role == "SYNC_MASTER" && (several || all_in_sync))
}

#[cfg(test)]
mod tests {
    use consign_core::finding::Severity;

    use super::*;

    const CLOSED: &str =
        "autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false\nenablePopBufferMerge=true\n";

    const CURRENT: Option<ServerVersion> = Some(ServerVersion { major: 5, minor: 3, patch: 3 });
    const SAFE: &str = "flushDiskType=SYNC_FLUSH\nbrokerRole=SYNC_MASTER\ninSyncReplicas=2\n";

    fn problems(lines: &str, version: Option<ServerVersion>) -> Vec<(&'static str, Severity)> {
        problems_of(lines, BrokerRuntime { version, disk_used: None })
    }

    fn problems_of(lines: &str, runtime: BrokerRuntime) -> Vec<(&'static str, Severity)> {
        let findings = judge("a", &BrokerSettings::from_lines(lines), runtime);
        assert!(
            findings.iter().all(|finding| (finding.severity == Severity::Fine) == finding.fix.is_empty())
        );
        let problem = |finding: &Finding| {
            (finding.severity > Severity::Fine).then_some((finding.code, finding.severity))
        };
        findings.iter().filter_map(problem).collect()
    }

    fn durable(flush: &str, rest: &str) -> String {
        format!("{CLOSED}flushDiskType={flush}\n{rest}")
    }

    /// apache/rocketmq#2066 and `rocketmq.md` 1.1: SEND_OK of the default settings is no durability.
    #[test]
    fn the_default_settings_are_reported_as_not_durable() {
        let defaults = durable("ASYNC_FLUSH", "brokerRole=ASYNC_MASTER\ninSyncReplicas=1");

        assert_eq!(problems(&defaults, CURRENT), [("broker-not-durable", Severity::Warning)]);
        assert_eq!(problems(CLOSED, CURRENT), [("broker-not-durable", Severity::Warning)]);
    }

    #[test]
    fn a_synchronous_master_counts_as_replicated_only_when_it_waits_for_a_replica() {
        let alone = durable("SYNC_FLUSH", "brokerRole=SYNC_MASTER\ninSyncReplicas=1");
        let waiting = durable("SYNC_FLUSH", "brokerRole=SYNC_MASTER\ninSyncReplicas=2");
        let controlled = durable(
            "SYNC_FLUSH",
            "brokerRole=SYNC_MASTER\nenableControllerMode=true\nallAckInSyncStateSet=true",
        );
        let asynchronous = durable("SYNC_FLUSH", "brokerRole=ASYNC_MASTER\ninSyncReplicas=2");
        let in_memory = durable("ASYNC_FLUSH", "brokerRole=SYNC_MASTER\ninSyncReplicas=2");

        assert_eq!(problems(&alone, CURRENT), [("broker-not-replicated", Severity::Warning)]);
        assert_eq!(problems(&asynchronous, CURRENT), [("broker-not-replicated", Severity::Warning)]);
        assert_eq!(problems(&in_memory, CURRENT), [("broker-not-flushed", Severity::Warning)]);
        assert_eq!(problems(&waiting, CURRENT), []);
        assert_eq!(problems(&controlled, CURRENT), []);
    }

    /// apache/rocketmq#8239, apache/rocketmq#7914.
    #[test]
    fn releases_before_five_three_are_errors_and_an_unknown_one_is_a_warning() {
        let settings = durable("SYNC_FLUSH", "brokerRole=SYNC_MASTER\ninSyncReplicas=2");
        let old = Some(ServerVersion { major: 5, minor: 2, patch: 9 });

        assert_eq!(problems(&settings, old), [("broker-old", Severity::Error)]);
        assert_eq!(problems(&settings, None), [("broker-version-unknown", Severity::Warning)]);
        assert_eq!(problems(&settings, Some(RELEASE_MIN)), []);
    }

    /// What the broker hands out is kept under its millisecond (`PopReviveService` of apache/rocketmq 5.5.0).
    #[test]
    fn deliveries_that_are_not_merged_in_memory_are_a_warning() {
        let durable = durable("SYNC_FLUSH", "brokerRole=SYNC_MASTER\ninSyncReplicas=2");
        let off = durable.replace("enablePopBufferMerge=true", "enablePopBufferMerge=false");
        let silent = durable.replace("enablePopBufferMerge=true", "");

        for settings in [off, silent] {
            assert_eq!(problems(&settings, CURRENT), [("pop-redelivery", Severity::Warning)]);
        }
    }

    /// Tests of ours failed on a disk that was 94 % full, each in its own words.
    #[test]
    fn a_disk_that_fills_up_is_a_warning_before_it_is_an_error() {
        let lines = format!("{SAFE}{CLOSED}");
        let disk = |used: f64| problems_of(&lines, BrokerRuntime { version: CURRENT, disk_used: Some(used) });

        assert_eq!(disk(0.85), []);
        assert_eq!(disk(0.86), [("broker-disk", Severity::Warning)]);
        assert_eq!(disk(0.90), [("broker-disk", Severity::Warning)]);
        assert_eq!(disk(0.94), [("broker-disk-full", Severity::Error)]);
    }

    /// apache/rocketmq#2744, #6657, #8801; a group that its first consumer creates is not ordered (#8154).
    #[test]
    fn topics_and_groups_created_by_accident_are_warnings() {
        let settings =
            "flushDiskType=SYNC_FLUSH\nbrokerRole=SYNC_MASTER\ninSyncReplicas=2\nenablePopBufferMerge=true\n";
        let open = format!("{settings}autoCreateTopicEnable=true\nautoCreateSubscriptionGroup=true");
        let wanted = [("topic-auto-create", Severity::Warning), ("group-auto-create", Severity::Warning)];

        assert_eq!(problems(&open, CURRENT), wanted);
        assert_eq!(problems(settings, CURRENT), wanted, "both are on by default");
        assert_eq!(problems(&format!("{settings}{CLOSED}"), CURRENT), []);
    }
}
