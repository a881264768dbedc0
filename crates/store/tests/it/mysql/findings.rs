//! What `doctor` says of tables as people have them.

use consign_core::finding::{Finding, Severity};
use consign_store::mysql::PayloadColumn;

use crate::mysql::server::{Bench, CONTRACT_MARKERS, CONTRACT_OUTBOX, Server};

on_both_servers!(
    tables_as_consign_makes_them_have_no_errors,
    a_collation_that_folds_keys_is_an_error,
    a_missing_pending_index_is_an_error,
    seconds_without_fractions_are_reported,
);

fn worst(findings: &[Finding], subject: &str) -> Severity {
    let about = findings.iter().filter(|finding| finding.subject.contains(subject));
    about.map(|finding| finding.severity).max().unwrap_or(Severity::Fine)
}

async fn tables_as_consign_makes_them_have_no_errors(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::LongBlob).await;

    let mut findings = bench.outbox().findings().await.unwrap();
    findings.extend(bench.inbox().findings().await.unwrap());

    let errors: Vec<_> = findings.iter().filter(|finding| finding.severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

/// B45 (`unkeyed/unkey#4091`): ids that differ only in case are one row, and the second event is lost.
async fn a_collation_that_folds_keys_is_an_error(server: Server) {
    let bench = Bench::with_collation(server, Some("utf8mb4_general_ci")).await;
    bench.run(CONTRACT_OUTBOX).await;
    bench.run(CONTRACT_MARKERS).await;

    let ids = bench.outbox().findings().await.unwrap();
    let keys = bench.inbox().findings().await.unwrap();

    // A folded event id is refused loudly by the primary key; a folded business key silently loses an effect.
    assert_eq!(worst(&ids, "event_id"), Severity::Warning, "{ids:?}");
    assert_eq!(worst(&keys, "business_key"), Severity::Error, "{keys:?}");
}

async fn a_missing_pending_index_is_an_error(server: Server) {
    let bench = Bench::contract(server).await;
    bench.run("ALTER TABLE outbox_event DROP INDEX idx_pending").await;

    let findings = bench.outbox().findings().await.unwrap();

    let index = findings.iter().find(|finding| finding.code == "outbox-index").expect("a finding");
    assert_eq!(index.severity, Severity::Error);
    assert!(!index.fix.is_empty());
}

/// B53 (`Effect-TS/effect#8126`): without fractions a retry in half a second is due at once or a second late.
async fn seconds_without_fractions_are_reported(server: Server) {
    let bench = Bench::contract(server).await;
    bench.run("ALTER TABLE outbox_event MODIFY available_at DATETIME(0)").await;

    let findings = bench.outbox().findings().await.unwrap();

    assert!(worst(&findings, "available_at") > Severity::Fine, "{findings:?}");
}
