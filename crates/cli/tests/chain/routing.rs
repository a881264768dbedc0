//! Where messages go: bindings, exchanges, limits, queue types, TLS, renamed tables, and what happens without a route.

use crate::harness::{Broker, Child, World, url};
use crate::post::{Post, SOON, beginning, catch_all, cell, must, run, store_url, write};

async fn sent(world: &World, rows: i64) {
    world.eventually(SOON, "rows are SENT", async || world.count("SENT").await == rows).await;
}

/// B17 (amqp-node/amqplib#115, jakubkulhan/bunny#25): a message that no queue takes is acknowledged by the broker all
/// the same, after it was returned.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_no_queue_takes_is_never_sent_until_a_binding_exists() {
    let world = World::migrated().await;
    let name = world.name.clone();
    let unbound =
        catch_all(&world, &url(Broker::RabbitMq), "").replace("bindings = [\"#\"]", "bindings = []");
    let config = write(&world, "unbound.toml", &unbound);
    must(&["topology", "apply"], &config);
    let post = Post::open(Broker::RabbitMq).await;
    world.insert("e-1", "OrderPaid", "{}").await;

    let relay = Child::start("relay", &config, &[]);
    world
        .eventually(SOON, "the broker returned the message twice", async || {
            world.number("SELECT CAST(attempts AS SIGNED) FROM outbox_event").await >= 2
        })
        .await;

    assert_eq!(world.count("SENT").await + world.count("DEAD").await, 0);
    let error = cell(&world, "SELECT last_error FROM outbox_event").await;
    assert!(error.contains("312") && error.contains("OrderPaid"), "{error}");
    assert!(relay.log().contains("message was unroutable"), "{}", relay.log());

    post.bind(&format!("{name}-audit"), &name, "OrderPaid").await;
    sent(&world, 1).await;

    let queue = format!("{name}-audit");
    assert_eq!(
        post.take_all(&queue).await.iter().map(|taken| taken.id.as_str()).collect::<Vec<_>>(),
        ["e-1"]
    );
    drop(relay);
}

/// B06 (MassTransit/MassTransit#6216): rows for an exchange that does not exist close their channel again and again,
/// and must not hold up the others.
#[tokio::test(flavor = "multi_thread")]
async fn rows_for_a_missing_exchange_wait_while_their_neighbours_go_through() {
    let world = World::migrated().await;
    let name = world.name.clone();
    let broker = url(Broker::RabbitMq);
    let good = catch_all(&world, &broker, "");
    let config = write(&world, "good.toml", &good);
    must(&["topology", "apply"], &config);
    let both = format!(
        "{good}\n[destination.nowhere]\ntype = \"rabbitmq\"\nurl = \"{broker}\"\nexchange = {{ name = \"{name}-nowhere\" }}\n"
    );
    let config = write(&world, "both.toml", &both);
    for row in 0..40 {
        world.insert(&format!("e-{row:02}"), "OrderPaid", "{}").await;
    }
    world
        .run("UPDATE outbox_event SET destination = 'nowhere' WHERE event_id LIKE '%3' OR event_id = 'e-00'")
        .await;
    assert_eq!(world.number("SELECT COUNT(*) FROM outbox_event WHERE destination = 'nowhere'").await, 5);

    let relay = Child::start("relay", &config, &[]);
    sent(&world, 35).await;
    world
        .eventually(SOON, "a misdirected row was tried again", async || {
            world
                .number(
                    "SELECT CAST(MAX(attempts) AS SIGNED) FROM outbox_event WHERE destination = 'nowhere'",
                )
                .await
                >= 2
        })
        .await;
    // A later neighbour is not held up either.
    world.insert("late", "OrderPaid", "{}").await;
    sent(&world, 36).await;

    assert_eq!(world.number("SELECT COUNT(*) FROM outbox_event WHERE destination = 'nowhere' AND status IN ('SENT', 'DEAD')").await, 0);
    world
        .eventually(SOON, "the reason is recorded", async || {
            cell(&world, "SELECT MAX(last_error) FROM outbox_event WHERE destination = 'nowhere'")
                .await
                .contains("404")
        })
        .await;
    drop(relay);
    let post = Post::open(Broker::RabbitMq).await;
    let queue = format!("{name}-audit");
    assert_eq!(post.take_all(&queue).await.len(), 36, "each neighbour was published once");
}

/// B23 (rabbitmq/rabbitmq-server#1812, rebus-org/Rebus#173): one message over the limit takes nobody along.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_over_the_configured_limit_dies_alone() {
    let world = World::migrated().await;
    let name = world.name.clone();
    let config =
        write(&world, "limit.toml", &catch_all(&world, &url(Broker::RabbitMq), "message_bytes_max = 1000"));
    must(&["topology", "apply"], &config);
    for row in 0..20 {
        let filler = "x".repeat(if row == 10 { 2000 } else { 10 });
        world.insert(&format!("e-{row:02}"), "OrderPaid", &format!("{{\"filler\": \"{filler}\"}}")).await;
    }

    let relay = Child::start("relay", &config, &[]);
    sent(&world, 19).await;
    world.eventually(SOON, "the large one is DEAD", async || world.count("DEAD").await == 1).await;

    let dead =
        cell(&world, "SELECT CONCAT(event_id, ' ', last_error) FROM outbox_event WHERE status = 'DEAD'")
            .await;
    assert!(dead.starts_with("e-10 ") && dead.contains("2014 bytes") && dead.contains("1000"), "{dead}");
    drop(relay);
    let post = Post::open(Broker::RabbitMq).await;
    let queue = format!("{name}-audit");
    assert_eq!(post.take_all(&queue).await.len(), 19);
}

/// B23: when only the broker knows its limit, it closes the channel over the message, with the neighbours in flight.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_over_the_brokers_own_limit_dies_alone() {
    let world = World::migrated().await.on(Broker::RabbitMq4);
    let name = world.name.clone();
    let broker = url(Broker::RabbitMq4);
    let config = write(&world, "large.toml", &catch_all(&world, &broker, "message_bytes_max = 100000000"));
    must(&["topology", "apply"], &config);
    for row in 0..20 {
        world.insert(&format!("e-{row:02}"), "OrderPaid", "{}").await;
    }
    let large = format!("\"{}\"", "x".repeat(17 << 20));
    world.insert("large", "OrderPaid", &large).await;
    // In the middle of the batch.
    world.run("UPDATE outbox_event SET available_at = (SELECT at FROM (SELECT available_at AS at FROM outbox_event WHERE event_id = 'e-09') AS middle) WHERE event_id = 'large'").await;

    let relay = Child::start("relay", &config, &[]);
    sent(&world, 20).await;
    world.eventually(SOON, "the large one is DEAD", async || world.count("DEAD").await == 1).await;

    let dead =
        cell(&world, "SELECT CONCAT(event_id, ' ', last_error) FROM outbox_event WHERE status = 'DEAD'")
            .await;
    assert!(dead.starts_with("large ") && dead.contains("406"), "{dead}");
    drop(relay);
    let post = Post::open(Broker::RabbitMq4).await;
    let queue = format!("{name}-audit");
    let mut ids: Vec<String> = post.take_all(&queue).await.into_iter().map(|taken| taken.id).collect();
    ids.sort();
    // Those that were in flight with it may have been published again, under the same ids.
    ids.dedup();
    assert_eq!(ids, (0..20).map(|row| format!("e-{row:02}")).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn classic_queues_quorum_queues_and_streams_of_both_brokers_take_every_row() {
    const ROWS: usize = 25;
    let world = World::unmigrated().await;
    let name = world.name.clone();
    for broker in [Broker::RabbitMq, Broker::RabbitMq4] {
        let address = url(broker);
        let queues = ["classic", "quorum", "stream"].map(|kind| {
            format!("  {{ name = \"{name}-{kind}\", type = \"{kind}\", bindings = [\"#\"] }},\n")
        });
        let text = format!(
            "{}[destination.main]\ntype = \"rabbitmq\"\nurl = \"{address}\"\nexchange = {{ name = \"{name}\" }}\n\
             queue = [\n{}]\n\n[[route]]\nevent_type = \"*\"\ndestination = \"main\"\n",
            beginning(&store_url(&world)),
            queues.concat()
        );
        let config = write(&world, "kinds.toml", &text);
        must(&["topology", "apply"], &config);
        must(&["topology", "check"], &config);
        world.run("DELETE FROM outbox_event").await;
        for row in 0..ROWS {
            world.insert(&format!("e-{row:02}"), "OrderPaid", "{\"amount\": 1}").await;
        }

        let relay = Child::start("relay", &config, &[]);
        sent(&world, 25).await;
        drop(relay);

        let post = Post::open(broker).await;
        let wanted: Vec<String> = (0..ROWS).map(|row| format!("e-{row:02}")).collect();
        for kind in ["classic", "quorum", "stream"] {
            let queue = format!("{name}-{kind}");
            let mut ids = match kind {
                "stream" => post.stream_ids(&queue, ROWS).await,
                _ => post.take_all(&queue).await.into_iter().map(|taken| taken.id).collect(),
            };
            ids.sort();
            assert_eq!(ids, wanted, "{kind} on {address}");
        }
        let queues = ["classic", "quorum", "stream"].map(|kind| format!("{name}-{kind}"));
        post.delete(&queues, std::slice::from_ref(&name)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_sent_over_tls_to_a_broker_whose_authority_is_named() {
    let (Ok(broker), Ok(authority)) =
        (std::env::var("CONSIGN_TEST_RABBITMQ4_TLS_URL"), std::env::var("CONSIGN_TEST_TLS_CA"))
    else {
        panic!("CONSIGN_TEST_RABBITMQ4_TLS_URL and CONSIGN_TEST_TLS_CA are set by cargo xtask test");
    };
    let world = World::unmigrated().await.on(Broker::RabbitMq4);
    let name = world.name.clone();
    let trusted = catch_all(&world, &broker, &format!("tls_ca_file = \"{authority}\""));
    let config = write(&world, "tls.toml", &trusted);
    let stranger = write(&world, "stranger.toml", &catch_all(&world, &broker, ""));
    must(&["topology", "apply"], &config);
    world.insert("e-1", "OrderPaid", "{}").await;

    // Without the authority the certificate is refused and nothing is sent.
    let refused = run(&["topology", "apply"], &stranger);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("certificate"), "{}", refused.stderr);

    let relay = Child::start("relay", &config, &[]);
    sent(&world, 1).await;
    drop(relay);
    let post = Post::open(Broker::RabbitMq4).await;
    let queue = format!("{name}-audit");
    assert_eq!(post.take_all(&queue).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn renamed_tables_and_columns_work_from_insert_to_effect() {
    let world = World::unmigrated().await;
    let name = world.name.clone();
    world.run("DROP TABLE outbox_event").await;
    world.run("DROP TABLE consumed_operation").await;
    let text = format!(
        "{}\n[[destination.main.queue]]\nname = \"{name}-points\"\ntype = \"classic\"\nbindings = [\"OrderPaid\"]\n\n\
         [[outbox]]\nname = \"orders\"\ntable = \"order_messages\"\ncolumns = {{ event_id = \"id\", event_type = \"kind\", \
         payload = \"body\", status = \"state\", available_at = \"due_at\", lease_token = \"owner\", attempts = \"tries\", \
         last_error = \"problem\", aggregate_id = \"order\" }}\n\n\
         [inbox]\ntable = \"done_operations\"\ncolumns = {{ business_key = \"what\", consumer_name = \"who\" }}\n\n\
         [[consumer]]\nname = \"points-award\"\nsource = \"main\"\nqueue = \"{name}-points\"\nkey = \"order:{{order_id}}:paid\"\n\
         compare = {{ buyer = \"user_id\", points = \"amount\" }}\n\
         bind.order_id = {{ pointer = \"/orderId\", type = \"integer\" }}\n\
         bind.user_id = {{ pointer = \"/userId\", type = \"integer\" }}\n\
         bind.amount = {{ pointer = \"/amount\", type = \"integer\" }}\n\
         [[consumer.statement]]\nsql = \"UPDATE points_account SET points = points + :amount WHERE user_id = :user_id\"\n",
        catch_all(&world, &url(Broker::RabbitMq), "")
    );
    let config = write(&world, "renamed.toml", &text);
    must(&["migrate"], &config);
    must(&["topology", "apply"], &config);
    must(&["doctor"], &config);
    world.run("INSERT INTO points_account (user_id, points) VALUES (70, 5)").await;

    let all = Child::start("run", &config, &[]);
    world
        .run(
            "INSERT INTO order_messages (id, `order`, kind, body, state, due_at, created_at) VALUES \
         ('e-1', 1, 'OrderPaid', '{\"orderId\": 1, \"userId\": 70, \"amount\": 30}', 'NEW', NOW(6), NOW(6))",
        )
        .await;
    world
        .eventually(SOON, "the effect is there and the row is SENT", async || {
            world.number("SELECT COUNT(*) FROM order_messages WHERE state = 'SENT' AND owner IS NULL AND tries = 1").await == 1
                && world.number("SELECT points FROM points_account WHERE user_id = 70").await == 35
        })
        .await;

    let marker =
        self::cell(&world, "SELECT CONCAT_WS(' ', who, what, event_id, buyer, points) FROM done_operations")
            .await;
    assert_eq!(marker, "points-award order:1:paid e-1 70 30");
    drop(all);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_without_a_route_waits_loudly_and_goes_out_once_there_is_one() {
    let world = World::migrated().await;
    let all = catch_all(&world, &url(Broker::RabbitMq), "");
    let narrow =
        write(&world, "narrow.toml", &all.replace("event_type = \"*\"", "event_type = \"OrderPaid\""));
    let wide = write(&world, "wide.toml", &all);
    must(&["topology", "apply"], &narrow);
    world.insert("lost", "OrderRefunded", "{}").await;
    world.insert("e-1", "OrderPaid", "{}").await;

    let mut relay = Child::start("relay", &narrow, &[]);
    sent(&world, 1).await;
    world
        .eventually(SOON, "the relay says what is missing", async || {
            let log = relay.log();
            log.contains("event has no route and waits")
                && log.contains("OrderRefunded")
                && log.contains("[[route]]")
        })
        .await;
    world.eventually(SOON, "the row is back in line", async || world.count("NEW").await == 1).await;
    let error = cell(&world, "SELECT last_error FROM outbox_event WHERE event_id = 'lost'").await;
    assert!(error.contains("no route takes event type \"OrderRefunded\""), "{error}");
    assert_eq!(world.count("DEAD").await, 0);
    relay.terminate();
    assert!(relay.wait(SOON).await.success());

    world.run("UPDATE outbox_event SET available_at = NOW(6) WHERE event_id = 'lost'").await;
    let relay = Child::start("relay", &wide, &[]);
    sent(&world, 2).await;
    drop(relay);
}
