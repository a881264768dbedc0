//! Benches over RocketMQ: what they report, what they leave behind, and what they refuse.

use serde_json::Value as Json;

use crate::harness::rocketmq::{Site, entry};
use crate::harness::{Broker, url};
use crate::post::{catch_all, run, write};

fn bench(site: &Site, arguments: &[&str]) -> Json {
    let ended = run(&[&["bench"], arguments, &["--json"]].concat(), &site.config);
    assert_eq!(ended.code, 0, "{arguments:?}: {}{}", ended.stdout, ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_transaction_of_the_bench_is_found_in_its_topic_once_and_nothing_stays_behind() {
    const TRANSACTIONS: u64 = 400;
    const WARM_UP: u64 = 200;
    let site = Site::prepared().await;
    let count = TRANSACTIONS.to_string();

    let figures =
        bench(&site, &["transaction", "--transactions", &count, "--concurrency", "4", "--connections", "2"]);

    for (key, wanted) in [
        ("transactions", TRANSACTIONS),
        ("concurrency", 4),
        ("connections", 2),
        ("committed", TRANSACTIONS + WARM_UP),
        ("delivered", TRANSACTIONS + WARM_UP),
        ("lost", 0),
        ("unfounded", 0),
    ] {
        assert_eq!(figures[key], wanted, "{key}: {figures}");
    }
    let number = |key: &str| figures[key].as_f64().unwrap_or_else(|| panic!("{key}: {figures}"));
    assert!(number("local_per_second") > 0.0 && number("producer_per_second") > 0.0, "{figures}");
    assert!(number("ratio_to_local") > 0.0, "{figures}");
    for side in ["local", "producer"] {
        let (half, most) = (number(&format!("{side}_p50_ms")), number(&format!("{side}_p99_ms")));
        assert!(half > 0.0 && half <= most, "{figures}");
    }
    assert_eq!(site.world.number("SELECT COUNT(*) FROM consign_transaction").await, 0, "markers");
    let own = "SELECT COUNT(*) FROM information_schema.tables
               WHERE table_schema = DATABASE() AND table_name LIKE 'consign_bench%'";
    assert_eq!(site.world.number(own).await, 0, "tables");
    let name = format!("consign_bench_transaction_{}", site.world.name);
    for broker in site.admin.masters().await.unwrap() {
        assert_eq!(site.admin.topic(&broker.address, &name).await.unwrap(), None);
        assert_eq!(site.admin.group(&broker.address, &name).await.unwrap(), None);
    }
    site.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bench_of_transactions_says_what_it_needs() {
    let bare = Site::changed(|table| drop(table.remove("transaction"))).await;
    let unnamed = Site::changed(|table| {
        entry(entry(table, "destination"), "points").remove("name_servers");
        // Topics are made by nobody then.
        entry(table, "setup").insert("on_start".into(), false.into());
    })
    .await;
    let rabbitmq = write(&bare.world, "rabbitmq.toml", &catch_all(&bare.world, &url(Broker::RabbitMq), ""));
    for (config, fix) in [
        (&bare.config, "add a section [transaction] to the config and run `consign migrate`"),
        (&unnamed.config, "destination points has no name_servers: add them"),
        (&rabbitmq, "no destination is of type rocketmq"),
    ] {
        let ended = run(&["bench", "transaction"], config);

        assert_eq!((ended.code, ended.stdout.as_str()), (1, ""), "{}", ended.stderr);
        assert!(ended.stderr.contains(fix), "{fix:?} is not in {}", ended.stderr);
    }
    bare.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn benches_that_measure_rabbitmq_say_so_over_rocketmq() {
    let site = Site::new().await;

    for what in ["consume", "latency", "order"] {
        let ended = run(&["bench", what], &site.config);

        assert_eq!((ended.code, ended.stdout.as_str()), (1, ""), "{}", ended.stderr);
        let words =
            format!("destination points is of type rocketmq, and bench {what} measures RabbitMQ only");
        assert!(ended.stderr.contains(&words), "{words:?} is not in {}", ended.stderr);
        assert!(ended.stderr.contains("bench relay and bench transaction measure RocketMQ"));
    }
    site.clean().await;
}
