//! Connections that go bad, and sessions as every unit needs them.

use std::time::Duration;

use consign_conformance::proxy::{Cut, Direction, Flow};
use consign_conformance::waiting::{eventually, within};
use consign_core::operation::{Comparison, Operation};
use consign_core::ports::{InboxStore, InboxTransaction, Mark, OutboxStore, StoreError};
use consign_store::mapping::MarkerMapping;
use consign_store::mysql::{Database, Encryption, Inbox, Options, PayloadColumn};
use sqlx::{AssertSqlSafe, Row, raw_sql};

use crate::mysql::server::{Bench, Server, claim, released, request, settle};

on_both_servers!(
    sessions_are_read_committed_strict_and_in_the_servers_zone,
    a_read_only_server_costs_every_old_connection_and_then_work_goes_on,
    a_connection_the_server_closed_while_idle_is_replaced_in_silence,
    a_killed_connection_costs_one_unit_at_most,
    a_silent_server_ends_a_unit_within_its_limit,
    a_server_that_comes_back_is_found_again,
    a_wrong_password_is_told_without_showing_it,
    a_wrong_url_is_told_without_showing_its_password,
    encryption_can_be_required_or_switched_off,
);

fn with_one_connection(bench: &Bench) -> Inbox {
    let options = Options { connections_max: 1, ..bench.options() };
    Inbox::new(Database::open(&options).expect("valid options"), MarkerMapping::default())
}

fn operation(key: &str) -> Operation {
    Operation {
        consumer: "c".into(),
        key: key.into(),
        event_id: None,
        comparison: Comparison::Fingerprint("f".repeat(64)),
        ..Operation::default()
    }
}

async fn apply(inbox: &Inbox, key: &str) -> Result<Mark, StoreError> {
    let mut tx = inbox.begin().await?;
    let mark = tx.mark(&operation(key)).await?;
    tx.commit().await.expect("the commit succeeds");
    Ok(mark)
}

/// Runs SQL on the inbox's only connection and gives its id.
async fn spoil(inbox: &Inbox, sql: &str) -> i64 {
    let mut tx = inbox.begin().await.expect("a transaction");
    let connection = tx.inner().await.expect("it is open");
    let row = raw_sql("SELECT CONNECTION_ID()").fetch_one(&mut **connection).await.expect("an id");
    raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut **connection).await.expect("the session is spoiled");
    tx.rollback().await.expect("the rollback succeeds");
    row.try_get_unchecked(0).expect("a number")
}

/// B49, `woocommerce/woocommerce#68778`: the session decides what the server cuts in silence.
async fn sessions_are_read_committed_strict_and_in_the_servers_zone(server: Server) {
    let bench = Bench::new(server).await;
    let level = if server == Server::MySql { "transaction_isolation" } else { "tx_isolation" };
    let sql = format!(
        "SELECT CONCAT_WS('|', @@{level}, @@SESSION.sql_mode LIKE '%STRICT_TRANS_TABLES%', \
         @@SESSION.time_zone = @@GLOBAL.time_zone, @@innodb_lock_wait_timeout, @@autocommit = 1, 1 || 0)"
    );

    let row = raw_sql(AssertSqlSafe(sql)).fetch_one(bench.database().pool()).await.expect("a session");

    let text: String = row.try_get_unchecked(0).expect("text");
    assert_eq!(text, "READ-COMMITTED|1|1|2|1|1");
}

/// B13, `brettwooldridge/HikariCP#1971`: after a failover the old server's connections look healthy and write nothing.
async fn a_read_only_server_costs_every_old_connection_and_then_work_goes_on(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let inbox = with_one_connection(&bench);
    spoil(&inbox, "SET SESSION TRANSACTION READ ONLY").await;

    let refused = apply(&inbox, "k").await;

    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert_eq!(apply(&inbox, "k").await, Ok(Mark::Inserted));
}

/// B78, `gotify/server#324`: the server closes idle connections.
async fn a_connection_the_server_closed_while_idle_is_replaced_in_silence(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let inbox = with_one_connection(&bench);
    let id = spoil(&inbox, "SET SESSION wait_timeout = 2").await;
    let table = if server == Server::MySql {
        "performance_schema.processlist"
    } else {
        "information_schema.processlist"
    };
    eventually(Duration::from_secs(30), || async {
        bench.number(&format!("SELECT COUNT(*) FROM {table} WHERE id = {id}")).await == 0
    })
    .await;

    assert_eq!(apply(&inbox, "k").await, Ok(Mark::Inserted));
}

async fn a_killed_connection_costs_one_unit_at_most(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let inbox = with_one_connection(&bench);
    let id = spoil(&inbox, "DO 0").await;
    bench.run(&format!("KILL CONNECTION {id}")).await;

    let first = apply(&inbox, "k").await;

    assert!(matches!(first, Ok(Mark::Inserted) | Err(StoreError::Unavailable(_))), "{first:?}");
    if first.is_err() {
        assert_eq!(apply(&inbox, "k").await, Ok(Mark::Inserted));
    }
}

/// B78, `t8y2/dbx#1391`: packets that vanish must not hang a unit of work for ever.
async fn a_silent_server_ends_a_unit_within_its_limit(server: Server) {
    let bench = Bench::contract(server).await;
    bench.insert("a").await;
    let (proxy, outbox) = bench.behind_proxy(Duration::from_secs(1)).await;
    let claims = claim(&outbox, 1).await.claims;
    let settled = consign_core::settle::SettleBatch { settlements: released(claims), repeat: false };
    outbox.sweep(1, Duration::ZERO, 20).await.expect("the settle's connection is open");
    proxy.set(Direction::ToClient, Flow::Swallow);

    let lost = Box::pin(within(Duration::from_secs(20), outbox.settle(&settled))).await;

    assert!(matches!(lost, Err(StoreError::Unavailable(_) | StoreError::CommitUnknown(_))), "{lost:?}");
    proxy.heal();
    let again = consign_core::settle::SettleBatch { repeat: true, ..settled };
    let answers = loop {
        match outbox.settle(&again).await {
            Err(StoreError::Contended(_) | StoreError::Unavailable(_)) => {}
            result => break result.expect("the repeat succeeds"),
        }
    };
    assert_ne!(answers, [consign_core::settle::Settled::Fenced]);
    assert_eq!(bench.status_of("a").await, "NEW");
}

async fn a_server_that_comes_back_is_found_again(server: Server) {
    let bench = Bench::contract(server).await;
    bench.insert("a").await;
    let (proxy, outbox) = bench.behind_proxy(Duration::from_secs(5)).await;
    claim(&outbox, 0).await;
    proxy.refuse();
    proxy.cut(Cut::Reset);
    eventually(Duration::from_secs(20), || async {
        matches!(outbox.claim(request(1)).await, Err(StoreError::Unavailable(_)))
    })
    .await;

    proxy.heal();

    let mut settled = false;
    eventually(Duration::from_secs(20), || async { outbox.claim(request(0)).await.is_ok() }).await;
    let claims = claim(&outbox, 1).await.claims;
    if !claims.is_empty() {
        settled = settle(&outbox, released(claims)).await == [consign_core::settle::Settled::Applied];
    }
    assert!(settled || bench.status_of("a").await == "SENDING");
}

async fn a_wrong_password_is_told_without_showing_it(server: Server) {
    let bench = Bench::new(server).await;
    let user = format!("u{}", &bench.name[8..28]);
    bench.run(&format!("CREATE USER '{user}'@'%' IDENTIFIED BY 'right'")).await;
    bench.run(&format!("GRANT ALL ON {}.* TO '{user}'@'%'", bench.name)).await;
    let url = bench.options().url.replacen("root", &user, 1);

    let right = Options { password: Some("right".into()), ..Options::new(url.clone()) };
    let connected = Database::connect(&right).await;
    let wrong = Options { password: Some("hidden-word".into()), ..Options::new(url) };
    let refused = Database::connect(&wrong).await.expect_err("the password is wrong");

    bench.run(&format!("DROP USER '{user}'@'%'")).await;
    connected.expect("the password is right");
    assert!(!refused.to_string().contains("hidden-word"), "{refused}");
    assert!(!format!("{wrong:?}").contains("hidden-word"));
}

async fn a_wrong_url_is_told_without_showing_its_password(server: Server) {
    let _ = server;
    let options = Options::new("mysql:/root:hidden-word@[::1:3306/x");

    let refused = Database::open(&options).expect_err("it is no url");

    assert!(!refused.to_string().contains("hidden-word"), "{refused}");
}

async fn encryption_can_be_required_or_switched_off(server: Server) {
    let bench = Bench::new(server).await;
    let cipher = "SHOW SESSION STATUS LIKE 'Ssl_cipher'";
    let encrypted = |encryption| {
        let options = Options { encryption, ..bench.options() };
        async move {
            let database = Database::connect(&options).await?;
            let row = raw_sql(cipher).fetch_one(database.pool()).await.expect("a session");
            Ok::<_, StoreError>(row.try_get_unchecked::<String, _>(1).is_ok_and(|cipher| !cipher.is_empty()))
        }
    };

    assert_eq!(encrypted(Encryption::Off).await, Ok(false));
    let required = encrypted(Encryption::Required).await;
    // The MariaDB under test has no certificate: required encryption must then fail, never fall back.
    match server {
        Server::MySql => assert_eq!(required, Ok(true)),
        Server::MariaDb => assert!(matches!(required, Err(StoreError::Unavailable(_))), "{required:?}"),
    }
}

/// B73, `zio/zio-quill#1862`: lists of every length exhaust the statements a server can hold. MariaDB does not show
/// the statements of other sessions; the texts are the same there.
#[test]
fn prepared_statements_stay_few_whatever_the_batch_sizes() {
    consign_conformance::waiting::run(async {
        let bench = Bench::contract(Server::MySql).await;
        let outbox = bench.outbox();
        for size in [1, 2, 3, 5, 7, 9, 12, 17, 23, 31, 33, 40, 50, 63, 65, 70] {
            for number in 0..size {
                bench.insert(&format!("event-{size}-{number}")).await;
            }
            let claims = claim(&outbox, 512).await.claims;
            assert_eq!(claims.len(), size);
            let dead = claims.into_iter().map(|claim| claim.dead("over")).collect();
            settle(&outbox, dead).await;
        }

        let count = format!(
            "SELECT COALESCE(MAX(c), 0) FROM (SELECT COUNT(*) AS c FROM performance_schema.prepared_statements_instances s
             JOIN performance_schema.threads t ON t.thread_id = s.owner_thread_id
             WHERE t.processlist_db = '{}' GROUP BY s.owner_thread_id) counts",
            bench.name
        );
        let most = bench.number(&count).await;
        assert!((1..=30).contains(&most), "{most} statements on one connection");
    });
}
