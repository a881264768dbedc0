//! Whether the broker asks long enough about half messages. Pure.
//!
//! A half message is asked about for the first time at age `transactionTimeOut`, then every `transactionCheckInterval`,
//! and given up after `transactionCheckMax` questions, whether anybody answered or not. Until then every local
//! transaction must have ended, or the broker gives up a message whose transaction still commits.

use std::time::Duration;

use consign_core::finding::Finding;
use consign_rocketmq::admin::BrokerSettings;

use super::Transactions;

/// The least that should be left for an outage of everything that can answer.
const OUTAGE_MIN: Duration = Duration::from_mins(1);

/// How many rounds the broker may count while a message is not asked about yet (apache/rocketmq#8311).
const ROUNDS_KEPT_BACK: u64 = 3;

/// When the broker asks, by its settings.
struct Budget {
    first: Duration,
    interval: Duration,
    checks: u64,
}

impl Budget {
    /// The settings, with the defaults of RocketMQ 5 for those that are not told.
    fn of(settings: &BrokerSettings) -> Self {
        Self {
            first: settings.milliseconds("transactionTimeOut").unwrap_or(Duration::from_secs(6)),
            interval: settings.milliseconds("transactionCheckInterval").unwrap_or(Duration::from_secs(30)),
            checks: settings.number("transactionCheckMax").unwrap_or(15),
        }
    }

    /// The age at which the last question is asked, at the earliest.
    fn last_question(&self) -> Duration {
        self.first.saturating_add(times(self.interval, self.checks.saturating_sub(1)))
    }
}

impl std::fmt::Display for Budget {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "transactionTimeOut={} ms, transactionCheckInterval={} ms, transactionCheckMax={}: the last question \
             comes at age {} s",
            self.first.as_millis(),
            self.interval.as_millis(),
            self.checks,
            self.last_question().as_secs()
        )
    }
}

/// Everything that the settings say about half messages.
pub(super) fn judge(broker: &str, settings: &BrokerSettings, transactions: &Transactions) -> Vec<Finding> {
    let subject = format!("broker {broker:?}");
    let budget = Budget::of(settings);
    let mut findings = vec![length(&subject, &budget, transactions.longest)];
    if let Some(after) = transactions.first_check_after {
        findings.extend(first_question(&subject, &budget, after));
    }
    findings.extend(kept(&subject, settings, transactions.longest));
    if settings.flag("rejectTransactionMessage") == Some(true) {
        findings.push(Finding::error(
            "transactions-refused",
            subject,
            "rejectTransactionMessage is on: the broker refuses every half message",
            "set rejectTransactionMessage=false",
        ));
    }
    findings
}

fn length(subject: &str, budget: &Budget, longest: Duration) -> Finding {
    let last = budget.last_question();
    let seconds = longest.as_secs_f64();
    let fix = format!(
        "raise transactionCheckMax so that transactionTimeOut + (transactionCheckMax - 1) x transactionCheckInterval is \
         more than {} s, or shorten the longest local transaction",
        longest.saturating_add(OUTAGE_MIN).as_secs()
    );
    match last.checked_sub(longest) {
        None | Some(Duration::ZERO) => Finding::error(
            "check-back-too-short",
            subject,
            format!(
                "{budget}, and a local transaction may take {seconds} s: the broker gives up half messages whose \
                 transactions can still commit"
            ),
            fix,
        ),
        Some(left) if left < OUTAGE_MIN => Finding::warning(
            "check-back-tight",
            subject,
            format!(
                "{budget}, and a local transaction may take {seconds} s: {} s without an answer are enough to make \
                 the broker give up committed messages, which are then sent again from their markers",
                left.as_secs_f64()
            ),
            fix,
        ),
        Some(left) => Finding::fine(
            "check-back-budget",
            subject,
            format!(
                "{budget}; after the longest local transaction of {seconds} s, answers may be away for {} s",
                left.as_secs_f64()
            ),
        ),
    }
}

/// The broker counts rounds in which it may not ask yet (apache/rocketmq#8311).
fn first_question(subject: &str, budget: &Budget, after: Duration) -> Option<Finding> {
    let counted = times(budget.interval, budget.checks.saturating_sub(ROUNDS_KEPT_BACK));
    (after >= counted).then(|| {
        Finding::error(
            "first-check-too-late",
            subject,
            format!(
                "{budget}, and messages ask for their first check after {} s: the broker counts rounds before that \
                 and may give a message up without one question (apache/rocketmq#8311)",
                after.as_secs_f64()
            ),
            format!("ask for the first check before {} s, or raise transactionCheckMax", counted.as_secs_f64()),
        )
    })
}

/// Half messages older than the log are given up whatever their count.
fn kept(subject: &str, settings: &BrokerSettings, longest: Duration) -> Option<Finding> {
    let hours = settings.number("fileReservedTime")?;
    let reserved = times(Duration::from_hours(1), hours);
    (reserved <= longest).then(|| {
        Finding::error(
            "half-messages-expire",
            subject,
            format!(
                "fileReservedTime={hours} h, and a local transaction may take {} s: the broker gives up older half \
                 messages without a question",
                longest.as_secs_f64()
            ),
            "raise fileReservedTime, or shorten the longest local transaction",
        )
    })
}

fn times(span: Duration, count: u64) -> Duration {
    span.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use consign_core::finding::Severity;

    use super::*;

    fn findings(lines: &str, longest: u64, first_check_after: Option<u64>) -> Vec<Finding> {
        let transactions = Transactions {
            longest: Duration::from_secs(longest),
            first_check_after: first_check_after.map(Duration::from_secs),
        };
        judge("a", &BrokerSettings::from_lines(lines), &transactions)
    }

    fn problems(lines: &str, longest: u64, first_check_after: Option<u64>) -> Vec<(&'static str, Severity)> {
        let findings = findings(lines, longest, first_check_after);
        let problem = |finding: &Finding| {
            (finding.severity > Severity::Fine).then_some((finding.code, finding.severity))
        };
        findings.iter().filter_map(problem).collect()
    }

    /// 6 s + 14 x 30 s: the settings as shipped.
    const SHIPPED: &str = "transactionTimeOut=6000\ntransactionCheckInterval=30000\ntransactionCheckMax=15";

    #[test]
    fn local_transactions_must_end_before_the_last_question() {
        assert_eq!(problems(SHIPPED, 30, None), []);
        assert_eq!(problems(SHIPPED, 366, None), []);
        assert_eq!(problems(SHIPPED, 367, None), [("check-back-tight", Severity::Warning)]);
        assert_eq!(problems(SHIPPED, 425, None), [("check-back-tight", Severity::Warning)]);
        assert_eq!(problems(SHIPPED, 426, None), [("check-back-too-short", Severity::Error)]);
        assert_eq!(problems("", 426, None), [("check-back-too-short", Severity::Error)]);
        let told = &findings(SHIPPED, 30, None)[0];
        assert!(told.text.contains("age 426 s") && told.text.contains("away for 396 s"), "{}", told.text);
    }

    #[test]
    fn no_check_at_all_is_too_short_for_any_transaction() {
        let none = "transactionTimeOut=1000\ntransactionCheckInterval=1000\ntransactionCheckMax=0";

        assert_eq!(problems(none, 1, None), [("check-back-too-short", Severity::Error)]);
    }

    /// apache/rocketmq#8311: 600 s of immunity with 15 rounds of 30 s lose the message without one question.
    #[test]
    fn a_first_check_later_than_the_rounds_last_is_an_error() {
        assert_eq!(problems(SHIPPED, 30, Some(359)), []);
        assert_eq!(problems(SHIPPED, 30, Some(360)), [("first-check-too-late", Severity::Error)]);
        assert_eq!(problems(SHIPPED, 30, Some(600)), [("first-check-too-late", Severity::Error)]);
    }

    #[test]
    fn half_messages_that_expire_with_the_log_and_refused_ones_are_errors() {
        let long = "transactionCheckMax=1000000\nfileReservedTime=1";
        let refusing = format!("{SHIPPED}\nrejectTransactionMessage=true\nfileReservedTime=48");

        assert_eq!(problems(long, 3599, None), []);
        assert_eq!(problems(long, 3600, None), [("half-messages-expire", Severity::Error)]);
        assert_eq!(problems(&refusing, 30, None), [("transactions-refused", Severity::Error)]);
    }
}
