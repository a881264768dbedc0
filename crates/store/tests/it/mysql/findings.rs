//! What `doctor` is told.

use consign_core::finding::{Finding, Severity};
use consign_store::mysql::{Database, Options, PayloadColumn};

use crate::mysql::server::{Bench, Server};

on_both_servers!(
    consigns_own_tables_have_no_errors,
    the_contracts_tables_are_usable_and_their_weak_points_are_named,
    missing_tables_are_errors,
    each_broken_part_of_an_outbox_is_named_with_its_fix,
    a_missing_index_is_seen_in_the_claims_plan,
    each_broken_part_of_a_marker_table_is_named,
    rows_due_far_ahead_are_reported,
    the_server_is_described,
    a_session_in_another_time_zone_and_a_wrong_clock_are_reported,
);

fn errors(findings: &[Finding]) -> Vec<&'static str> {
    let mut codes = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .map(|finding| finding.code)
        .collect::<Vec<_>>();
    codes.sort_unstable();
    codes.dedup();
    codes
}

fn has(findings: &[Finding], code: &str, severity: Severity) -> bool {
    findings.iter().any(|finding| finding.code == code && finding.severity == severity)
}

async fn outbox(bench: &Bench) -> Vec<Finding> {
    bench.outbox().findings().await.expect("findings")
}

async fn inbox(bench: &Bench) -> Vec<Finding> {
    bench.inbox().findings().await.expect("findings")
}

async fn consigns_own_tables_have_no_errors(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::LongBlob).await;

    let findings = [outbox(&bench).await, inbox(&bench).await].concat();

    let worse = findings.iter().filter(|finding| finding.severity != Severity::Fine).collect::<Vec<_>>();
    assert!(worse.is_empty(), "{worse:#?}");
}

async fn the_contracts_tables_are_usable_and_their_weak_points_are_named(server: Server) {
    let bench = Bench::contract(server).await;

    let (outbox, inbox) = (outbox(&bench).await, inbox(&bench).await);

    assert_eq!(errors(&outbox), Vec::<&str>::new());
    assert!(has(&outbox, "outbox-column-optional", Severity::Warning));
    assert!(has(&outbox, "outbox-key-collation", Severity::Warning));
    // MariaDB's JSON is text, kept as written.
    assert_eq!(has(&outbox, "outbox-payload-json", Severity::Warning), server == Server::MySql);
    assert_eq!(errors(&inbox), ["inbox-table-missing", "marker-key-collation"]);
    let optional =
        inbox.iter().find(|finding| finding.code == "marker-column-optional").expect("it is named");
    assert_eq!(optional.severity, Severity::Warning);
    assert!(optional.text.contains("none can be purged"), "{optional:?}");
    let unfixed = |finding: &&Finding| finding.severity != Severity::Fine && finding.fix.is_empty();
    assert_eq!(outbox.iter().chain(&inbox).filter(unfixed).count(), 0);
}

async fn missing_tables_are_errors(server: Server) {
    let bench = Bench::new(server).await;

    assert_eq!(errors(&outbox(&bench).await), ["outbox-table-missing"]);
    assert_eq!(errors(&inbox(&bench).await), ["inbox-table-missing", "marker-table-missing"]);
}

async fn each_broken_part_of_an_outbox_is_named_with_its_fix(server: Server) {
    for (break_it, code, severity) in [
        ("DROP COLUMN lease_token", "outbox-column-missing", Severity::Error),
        ("MODIFY available_at DATETIME(0)", "outbox-date-precision", Severity::Error),
        ("MODIFY locked_until VARCHAR(40)", "outbox-date-type", Severity::Error),
        ("MODIFY lease_token VARCHAR(16)", "outbox-column-short", Severity::Error),
        ("MODIFY status VARCHAR(7)", "outbox-column-short", Severity::Error),
        ("MODIFY event_id BIGINT", "outbox-key-type", Severity::Error),
        ("MODIFY event_id VARCHAR(64) COLLATE utf8mb4_bin", "outbox-key-collation", Severity::Warning),
        ("MODIFY attempts TINYINT", "outbox-attempts-type", Severity::Warning),
        ("MODIFY payload BLOB", "outbox-payload-small", Severity::Warning),
        ("ENGINE = MyISAM", "table-engine", Severity::Error),
    ] {
        let bench = Bench::contract(server).await;
        bench.run(&format!("ALTER TABLE outbox_event {break_it}")).await;

        let findings = outbox(&bench).await;

        assert!(has(&findings, code, severity), "{break_it}: {findings:#?}");
    }
}

/// B02, `OneUptime/oneuptime#3117`: the index decides which rows a claim locks.
async fn a_missing_index_is_seen_in_the_claims_plan(server: Server) {
    let bench = Bench::contract(server).await;
    bench.run("ALTER TABLE outbox_event DROP KEY idx_pending, ADD KEY (status)").await;
    for number in 0..50 {
        bench.insert(&format!("event-{number}")).await;
    }

    let findings = outbox(&bench).await;

    assert_eq!(errors(&findings), ["outbox-claim-plan", "outbox-index"]);
}

async fn each_broken_part_of_a_marker_table_is_named(server: Server) {
    for (break_it, code, severity) in [
        ("DROP PRIMARY KEY, ADD KEY (consumer_name, business_key)", "marker-key", Severity::Error),
        (
            "DROP PRIMARY KEY, ADD PRIMARY KEY (consumer_name, business_key, event_id)",
            "marker-key",
            Severity::Error,
        ),
        ("DROP PRIMARY KEY, DROP COLUMN business_key", "marker-column-missing", Severity::Error),
        ("MODIFY user_id DOUBLE", "marker-comparison-float", Severity::Warning),
        ("MODIFY business_key VARCHAR(128) COLLATE utf8mb4_bin", "marker-key-collation", Severity::Warning),
    ] {
        let bench = Bench::contract(server).await;
        bench.run(&format!("ALTER TABLE consumed_operation {break_it}")).await;

        let findings = inbox(&bench).await;

        assert!(has(&findings, code, severity), "{break_it}: {findings:#?}");
    }
}

async fn rows_due_far_ahead_are_reported(server: Server) {
    let bench = Bench::contract(server).await;
    bench.insert("a").await;
    assert!(has(&outbox(&bench).await, "outbox-due-far", Severity::Fine));
    bench.run("UPDATE outbox_event SET available_at = NOW(6) + INTERVAL 2 DAY").await;

    assert!(has(&outbox(&bench).await, "outbox-due-far", Severity::Warning));
}

async fn now_micros(bench: &Bench) -> i64 {
    bench.number("SELECT ROUND(UNIX_TIMESTAMP(NOW(6)) * 1000000)").await
}

async fn the_server_is_described(server: Server) {
    let bench = Bench::new(server).await;

    let findings = bench.database().findings(now_micros(&bench).await).await.expect("findings");

    assert_eq!(errors(&findings), Vec::<&str>::new());
    for code in ["server-version", "session-isolation", "session-time-zone", "clock-skew"] {
        assert!(has(&findings, code, Severity::Fine), "{code}: {findings:#?}");
    }
}

async fn a_session_in_another_time_zone_and_a_wrong_clock_are_reported(server: Server) {
    let bench = Bench::new(server).await;
    let options = Options { time_zone: Some("+09:30".into()), ..bench.options() };
    let database = Database::open(&options).expect("valid options");

    let findings = database.findings(now_micros(&bench).await - 3_600_000_000).await.expect("findings");

    assert!(has(&findings, "session-time-zone", Severity::Warning));
    assert!(has(&findings, "clock-skew", Severity::Warning));
}
