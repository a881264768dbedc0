//! The windows on MySQL and RocketMQ, found by `CONSIGN_TEST_MYSQL_URL`, `CONSIGN_TEST_ROCKETMQ_URL` and
//! `CONSIGN_TEST_ROCKETMQ_NAMESRV`.

use std::sync::PoisonError;

use super::{WHOLE_RUN, assert_proven, command, text};

/// Every window that exists on RocketMQ.
const WINDOWS: [&str; 23] = [
    "commit-then-send",
    "send-then-commit",
    "claim-without-lease",
    "send-status-ignored",
    "timeout-marked-sent",
    "settle-without-token",
    "half-then-died",
    "died-before-final-commit",
    "check-back-while-open",
    "check-back-given-up",
    "check-back-without-database",
    "retry-with-new-id",
    "ack-before-commit",
    "lost-ack-without-marker",
    "marker-outside-transaction",
    "select-then-insert",
    "id-only-dedup",
    "batch-ack-over-unfinished",
    "redelivery-storm",
    "poison-in-a-message-group",
    "handle-expired",
    "stale-overwrite",
    "purge-before-horizon",
];

#[test]
fn every_naive_side_shows_its_defect_on_rocketmq_and_no_side_with_consign_has_one() {
    for variable in ["CONSIGN_TEST_MYSQL_URL", "CONSIGN_TEST_ROCKETMQ_URL", "CONSIGN_TEST_ROCKETMQ_NAMESRV"] {
        assert!(
            std::env::var(variable).is_ok(),
            "{variable} is not set: run the tests with cargo xtask test"
        );
    }
    let _alone = WHOLE_RUN.lock().unwrap_or_else(PoisonError::into_inner);

    let output = command(&["--json", "--only", "rocketmq"]).output().expect("consign starts");

    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert_proven(&output, "rocketmq", &WINDOWS);
}
