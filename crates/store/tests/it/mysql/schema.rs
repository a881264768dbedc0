//! Migrations.

use consign_core::ports::StoreError;
use consign_core::value::ValueType;
use consign_store::mapping::{ComparisonColumn, Identifier, MarkerMapping, OutboxMapping};
use consign_store::mysql::{Database, PayloadColumn, Schema};

use crate::mysql::server::{Bench, CONTRACT_OUTBOX, Server, claim, ids};

on_both_servers!(
    a_plan_changes_nothing_and_is_what_applying_runs,
    a_second_migration_finds_nothing_to_do,
    migrations_side_by_side_do_not_collide,
    an_existing_table_keeps_its_rows_and_gains_nullable_columns,
    producers_that_name_their_columns_go_on_after_a_migration,
    a_table_that_is_something_else_is_refused,
    key_columns_tell_case_accents_and_spaces_apart,
    the_payload_column_is_as_asked,
    comparison_columns_are_added_once,
    records_of_an_earlier_version_are_extended,
);

/// The outbox, the markers, and consign's own.
const TABLES: usize = 10;

fn schema(database: Database) -> Schema {
    Schema::new(database)
        .with_outbox(OutboxMapping::default(), PayloadColumn::Json)
        .with_markers(MarkerMapping::default())
}

async fn a_plan_changes_nothing_and_is_what_applying_runs(server: Server) {
    let bench = Bench::new(server).await;
    let schema = schema(bench.database());

    let planned = schema.plan().await.expect("a plan");

    assert_eq!(planned.len(), TABLES);
    let tables =
        format!("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '{}'", bench.name);
    assert_eq!(bench.number(&tables).await, 0);
    assert_eq!(schema.apply().await.expect("the migration succeeds"), planned);
    assert_eq!(bench.number(&tables).await, i64::try_from(TABLES).expect("few"));
}

async fn a_second_migration_finds_nothing_to_do(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;

    assert_eq!(bench.migrate(PayloadColumn::Json).await, Vec::<String>::new());
}

async fn migrations_side_by_side_do_not_collide(server: Server) {
    let bench = Bench::contract(server).await;
    let migrations = (0..4).map(|_| {
        let schema = schema(bench.database());
        tokio::spawn(async move { schema.apply().await })
    });
    let mut statements = 0;
    for migration in migrations.collect::<Vec<_>>() {
        statements += migration.await.expect("no panic").expect("the migration succeeds").len();
    }

    assert_eq!(statements, TABLES, "each statement ran once");
}

async fn an_existing_table_keeps_its_rows_and_gains_nullable_columns(server: Server) {
    let bench = Bench::contract(server).await;
    bench.insert("old").await;
    bench.run("ALTER TABLE outbox_event DROP KEY idx_pending").await;

    let statements = bench.migrate(PayloadColumn::Json).await;

    let altered = statements.iter().filter(|statement| statement.starts_with("ALTER TABLE")).count();
    assert_eq!(altered, 2, "one step per table: {statements:#?}");
    let shape = bench.outbox().shape().await.expect("a shape");
    for added in ["headers", "route_key", "last_error", "last_outcome", "sent_at", "business_key"] {
        assert!(shape.column(added).is_some_and(|column| column.nullable), "{added}");
    }
    assert!(!shape.has("sequence"), "existing rows would be numbered in no order");
    assert_eq!(ids(&claim(&bench.outbox(), 1).await), ["old"]);
    assert_eq!(bench.migrate(PayloadColumn::Json).await, Vec::<String>::new());
}

async fn producers_that_name_their_columns_go_on_after_a_migration(server: Server) {
    let bench = Bench::contract(server).await;
    bench.migrate(PayloadColumn::Json).await;

    bench.insert("new").await;

    assert_eq!(ids(&claim(&bench.outbox(), 1).await), ["new"]);
}

async fn a_table_that_is_something_else_is_refused(server: Server) {
    let bench = Bench::new(server).await;
    bench.run("CREATE TABLE outbox_event (id INT PRIMARY KEY)").await;

    let refused = schema(bench.database()).apply().await;

    let Err(StoreError::Schema(text)) = refused else { panic!("{refused:?}") };
    assert!(text.contains("event_id"), "{text}");
    let columns =
        format!("SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = '{}'", bench.name);
    assert_eq!(bench.number(&columns).await, 1);
}

/// B45 `unkeyed/unkey#4091` and B46 `matrixorigin/matrixone#28164`: collations that take different keys for the same.
async fn key_columns_tell_case_accents_and_spaces_apart(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    for key in ["Order:42", "order:42", "\u{d6}rder:42", "order:42 "] {
        bench.insert(key).await;
        bench
            .run(&format!(
                "INSERT INTO consumed_operation (consumer_name, business_key) VALUES ('c', '{key}')"
            ))
            .await;
    }

    assert_eq!(bench.number("SELECT COUNT(*) FROM outbox_event").await, 4);
    assert_eq!(
        bench.number("SELECT COUNT(*) FROM consumed_operation WHERE business_key = 'order:42'").await,
        1
    );
    assert_eq!(claim(&bench.outbox(), 10).await.claims.len(), 4);
}

async fn the_payload_column_is_as_asked(server: Server) {
    let bench = Bench::new(server).await;
    let table = Identifier::table("other_outbox").expect("a valid name");
    let mapping = OutboxMapping::new(table);
    let bytes = Schema::new(bench.database()).with_outbox(mapping, PayloadColumn::LongBlob);
    bytes.apply().await.expect("the migration succeeds");
    bench.run(CONTRACT_OUTBOX).await;

    let declared = |table: &str| {
        format!(
            "SELECT data_type FROM information_schema.columns WHERE table_schema = '{}' AND table_name = '{table}' AND column_name = 'payload'",
            bench.name
        )
    };

    assert_eq!(bench.text(&declared("other_outbox")).await.as_deref(), Some("longblob"));
    let json = if server == Server::MySql { "json" } else { "longtext" };
    assert_eq!(bench.text(&declared("outbox_event")).await.as_deref(), Some(json));
}

async fn comparison_columns_are_added_once(server: Server) {
    let kinds = [
        ("user_id", ValueType::Integer),
        ("price", ValueType::Decimal),
        ("currency", ValueType::String),
        ("gift", ValueType::Boolean),
        ("basket", ValueType::Json),
    ];
    let columns = kinds.map(|(name, kind)| {
        let name = Identifier::column(name).expect("a valid name");
        ComparisonColumn { name, kind }
    });
    let bench = Bench::new(server).await;
    let schema = schema(bench.database()).with_comparison(columns.to_vec());
    let planned = schema.plan().await.expect("a plan");

    let applied = schema.apply().await.expect("the migration succeeds");

    assert_eq!(applied, planned);
    assert_eq!(applied.len(), TABLES + 5, "every table and five columns: {applied:#?}");
    assert_eq!(schema.plan().await.expect("a plan"), Vec::<String>::new());
    assert_eq!(bench.number("SELECT COUNT(price) FROM consumed_operation").await, 0);
}

/// The records as consign made them before they had ids.
const EARLIER_RECORDS: [&str; 2] = [
    "CREATE TABLE consign_conflict (
        consumer_name VARCHAR(128) NOT NULL, business_key VARCHAR(512) NOT NULL, content_digest CHAR(64) NOT NULL,
        event_id VARCHAR(255) NULL, existing_event_id VARCHAR(255) NULL, comparison TEXT NOT NULL,
        existing TEXT NOT NULL, source VARCHAR(255) NOT NULL, payload MEDIUMBLOB NOT NULL,
        payload_bytes BIGINT NOT NULL, `count` BIGINT NOT NULL, first_seen_at DATETIME(6) NOT NULL,
        last_seen_at DATETIME(6) NOT NULL, resolved_at DATETIME(6) NULL, resolution VARCHAR(255) NULL,
        PRIMARY KEY (consumer_name, business_key, content_digest)) ENGINE = InnoDB CHARSET = utf8mb4",
    "CREATE TABLE consign_dead_delivery (
        consumer_name VARCHAR(128) NOT NULL, content_digest CHAR(64) NOT NULL, business_key VARCHAR(255) NULL,
        message_id VARCHAR(255) NULL, message_type VARCHAR(255) NULL, source VARCHAR(255) NOT NULL,
        reason VARCHAR(1024) NOT NULL, headers TEXT NULL, payload MEDIUMBLOB NOT NULL,
        payload_bytes BIGINT NOT NULL, `count` BIGINT NOT NULL, first_seen_at DATETIME(6) NOT NULL,
        last_seen_at DATETIME(6) NOT NULL, resolved_at DATETIME(6) NULL, resolution VARCHAR(255) NULL,
        PRIMARY KEY (consumer_name, content_digest)) ENGINE = InnoDB CHARSET = utf8mb4",
];

async fn records_of_an_earlier_version_are_extended(server: Server) {
    let bench = Bench::contract(server).await;
    for table in EARLIER_RECORDS {
        bench.run(table).await;
    }
    for key in ["a", "b"] {
        let row = format!("'c', '{key}', '{key}'");
        bench
            .run(&format!(
                "INSERT INTO consign_conflict (consumer_name, business_key, content_digest, comparison, existing,
                 source, payload, payload_bytes, `count`, first_seen_at, last_seen_at)
                 VALUES ({row}, '', '', '', 'x', 1, 1, NOW(6), NOW(6))"
            ))
            .await;
        bench
            .run(&format!(
                "INSERT INTO consign_dead_delivery (consumer_name, business_key, content_digest, source, reason,
                 payload, payload_bytes, `count`, first_seen_at, last_seen_at)
                 VALUES ({row}, '', '', 'x', 1, 1, NOW(6), NOW(6))"
            ))
            .await;
    }
    let outdated = |findings: Vec<consign_core::finding::Finding>| {
        findings.iter().filter(|finding| finding.code == "inbox-table-outdated").count()
    };
    assert_eq!(outdated(bench.inbox().findings().await.expect("findings")), 2);

    let statements = bench.migrate(PayloadColumn::Json).await;

    let altered = statements.iter().filter(|text| text.starts_with("ALTER TABLE `consign_")).count();
    assert_eq!(altered, 2, "one step per table: {statements:#?}");
    assert_eq!(bench.migrate(PayloadColumn::Json).await, Vec::<String>::new());
    assert_eq!(outdated(bench.inbox().findings().await.expect("findings")), 0);
    for table in ["consign_conflict", "consign_dead_delivery"] {
        let ids = format!("SELECT COUNT(DISTINCT id) FROM {table} WHERE payload = 'x'");
        assert_eq!(bench.number(&ids).await, 2, "{table}");
    }
    let conflicts = bench.inbox().conflicts(&consign_store::record::ConflictFilter::default()).await;
    assert_eq!(conflicts.expect("they can be listed").len(), 2);
}
