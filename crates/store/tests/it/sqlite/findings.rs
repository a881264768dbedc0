//! What doctor reports.

use consign_core::finding::{Finding, Severity};

use crate::sqlite::file::{CONTRACT, File};

fn of<'f>(findings: &'f [Finding], code: &str) -> Vec<&'f Finding> {
    findings.iter().filter(|finding| finding.code == code).collect()
}

fn severity(findings: &[Finding], code: &str) -> Option<Severity> {
    of(findings, code).iter().map(|finding| finding.severity).max()
}

async fn now_micros(file: &File) -> i64 {
    file.number("SELECT CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)").await
}

#[tokio::test]
async fn a_migrated_file_has_nothing_to_complain_about() {
    let file = File::migrated().await;
    let (outbox, inbox) = (file.outbox().await, file.inbox().await);

    let mut findings = outbox.database().findings(now_micros(&file).await).await.unwrap();
    findings.extend(outbox.findings().await.unwrap());
    findings.extend(inbox.findings().await.unwrap());

    let loud: Vec<_> = findings.iter().filter(|finding| finding.severity != Severity::Fine).collect();
    assert!(loud.is_empty(), "{loud:#?}");
    for code in ["sqlite-journal", "outbox-index", "outbox-claim-plan", "outbox-key", "marker-key"] {
        assert_eq!(severity(&findings, code), Some(Severity::Fine), "{code}");
    }
}

#[tokio::test]
async fn the_contracts_tables_work_and_miss_only_what_is_optional() {
    let file = File::contract().await;

    let findings = file.outbox().await.findings().await.unwrap();

    assert_eq!(severity(&findings, "outbox-column-optional"), Some(Severity::Warning));
    assert_eq!(severity(&findings, "outbox-payload-json"), Some(Severity::Warning));
    assert!(findings.iter().all(|finding| finding.severity < Severity::Error), "{findings:#?}");
}

/// Case B02 (`OneUptime/oneuptime#3117`): a claim that sorts is found before it hurts.
#[tokio::test]
async fn a_missing_index_and_a_sorting_claim_are_errors() {
    let file = File::contract().await;
    file.run("DROP INDEX idx_pending").await;

    let findings = file.outbox().await.findings().await.unwrap();

    assert_eq!(severity(&findings, "outbox-index"), Some(Severity::Error));
    assert_eq!(severity(&findings, "outbox-claim-plan"), Some(Severity::Error));
}

#[tokio::test]
async fn missing_tables_and_columns_are_errors() {
    let empty = File::empty().await;
    let findings = empty.outbox().await.findings().await.unwrap();
    assert_eq!(severity(&findings, "outbox-table-missing"), Some(Severity::Error));
    let findings = empty.inbox().await.findings().await.unwrap();
    assert_eq!(severity(&findings, "marker-table-missing"), Some(Severity::Error));
    assert_eq!(of(&findings, "inbox-table-missing").len(), 5);

    let lacking = File::empty().await;
    lacking.run(&CONTRACT.replace("lease_token VARCHAR(64) NULL,", "")).await;
    let findings = lacking.outbox().await.findings().await.unwrap();
    let [finding] = of(&findings, "outbox-column-missing")[..] else { panic!("{findings:#?}") };
    assert!(finding.text.contains("lease_token"), "{}", finding.text);
}

/// Case B45 (`unkeyed/unkey#4091`).
#[tokio::test]
async fn keys_that_compare_loosely_or_not_at_all_are_errors() {
    let loose = File::empty().await;
    loose
        .run(&CONTRACT.replace("business_key VARCHAR(128)", "business_key VARCHAR(128) COLLATE NOCASE"))
        .await;
    assert_eq!(severity(&loose.inbox().await.findings().await.unwrap(), "marker-key"), Some(Severity::Error));

    let open = File::empty().await;
    open.run(
        &CONTRACT.replace("PRIMARY KEY (consumer_name, business_key)", "UNIQUE (business_key, event_id)"),
    )
    .await;
    assert_eq!(severity(&open.inbox().await.findings().await.unwrap(), "marker-key"), Some(Severity::Error));
}

/// Cases B52 (`humanmade/Cavalcade#55`) and B53 (`Effect-TS/effect#8126`): dates of another zone or another form.
#[tokio::test]
async fn rows_that_wait_for_long_or_for_ever_are_reported() {
    let file = File::contract().await;
    let insert = |id: &str, due: &str| {
        format!(
            "INSERT INTO outbox_event (event_id, event_type, status, available_at) VALUES ({id}, 't', 'NEW', {due})"
        )
    };
    file.run(&insert("'far'", "strftime('%Y-%m-%d %H:%M:%f', 'now', '+2 days')")).await;
    file.run(&insert("'iso'", "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')")).await;
    file.run(&insert("'unix'", "unixepoch()")).await;
    file.run(&insert("x'00'", "'2020-01-01 00:00:00'")).await;

    let findings = file.outbox().await.findings().await.unwrap();

    assert_eq!(severity(&findings, "outbox-due-far"), Some(Severity::Warning));
    assert!(of(&findings, "outbox-date-form")[0].text.contains("of 2 waiting rows"), "{findings:#?}");
    assert!(of(&findings, "outbox-key-type")[0].text.starts_with("1 waiting rows"), "{findings:#?}");
}

#[tokio::test]
async fn a_clock_that_differs_is_reported() {
    let file = File::migrated().await;
    let database = file.database().await;

    let late = database.findings(now_micros(&file).await - 60_000_000).await.unwrap();

    assert_eq!(severity(&late, "clock-skew"), Some(Severity::Warning));
    assert_eq!(severity(&late, "sqlite-encoding"), None);
}
