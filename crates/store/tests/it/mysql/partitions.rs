//! Partitions: who claims what, and that nobody claims what is no longer theirs.

use std::collections::BTreeSet;
use std::time::Duration;

use consign_conformance::store::request::{self, claim};
use consign_conformance::waiting::{eventually, within};
use consign_core::ports::{OutboxStore, StoreError};
use consign_core::relay::DeadHead;
use consign_store::mysql::{OrderedOutbox, PayloadColumn};
use consign_store::order::OrderSettings;

use crate::mysql::server::{Bench, Server, ids};

on_both_servers!(
    nothing_is_claimed_before_partitions_are_held,
    two_relays_share_and_claim_each_its_own,
    two_four_and_one_relays_reach_their_shares_within_two_looks,
    a_holder_whose_partitions_were_taken_gets_no_rows_of_them,
    a_killed_relays_partitions_are_taken_when_its_lease_ends,
    a_partition_does_not_change_hands_during_a_claim,
    relays_that_start_together_make_the_partitions_once,
    a_database_without_the_tables_says_to_migrate,
);

const PARTITIONS: u16 = 16;
const LONG: Duration = Duration::from_mins(1);
const PATIENCE: Duration = Duration::from_secs(20);

fn ordered(bench: &Bench) -> OrderedOutbox {
    bench.outbox().ordered(OrderSettings { partitions: PARTITIONS, dead: DeadHead::Block })
}

async fn hold(outbox: &OrderedOutbox, relay: &str) -> usize {
    outbox.hold_partitions(relay, LONG).await.expect("the look succeeds").partitions.len()
}

/// One event each of so many aggregates.
async fn fill(bench: &Bench, aggregates: u32) {
    let values: Vec<String> = (0..aggregates)
        .map(|number| format!("('{number}', '{number}', 'T', '{{}}', NOW(6) - INTERVAL 1 SECOND)"))
        .collect();
    let columns = "event_id, aggregate_id, event_type, payload, available_at";
    bench.run(&format!("INSERT INTO outbox_event ({columns}) VALUES {}", values.join(","))).await;
}

async fn nothing_is_claimed_before_partitions_are_held(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    fill(&bench, 20).await;
    let outbox = ordered(&bench);

    assert!(ids(&claim(&outbox, 100).await).is_empty());
    assert_eq!(hold(&outbox, "a").await, usize::from(PARTITIONS));
    assert_eq!(claim(&outbox, 100).await.claims.len(), 20);
}

async fn two_relays_share_and_claim_each_its_own(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    fill(&bench, 200).await;
    let (first, second) = (ordered(&bench), ordered(&bench));
    for _ in 0..2 {
        hold(&first, "a").await;
        hold(&second, "b").await;
    }
    let holdings = first.hold_partitions("a", LONG).await.expect("the look succeeds");
    assert_eq!((holdings.partitions.len(), holdings.taken, holdings.gone, holdings.relays), (8, 0, 0, 2));

    let (mine, theirs) = (claim(&first, 500).await, claim(&second, 500).await);

    let (mine, theirs): (BTreeSet<_>, BTreeSet<_>) =
        (ids(&mine).into_iter().collect(), ids(&theirs).into_iter().collect());
    assert_eq!(mine.len() + theirs.len(), 200);
    assert!(
        mine.is_disjoint(&theirs) && mine.len() > 50 && theirs.len() > 50,
        "{} {}",
        mine.len(),
        theirs.len()
    );
    let status = first.order_status().await.expect("a status");
    let shares: Vec<_> = status.relays.iter().map(|share| (share.relay.as_str(), share.partitions)).collect();
    assert_eq!((shares, status.free), (vec![("a", 8), ("b", 8)], 0));
}

async fn two_four_and_one_relays_reach_their_shares_within_two_looks(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let relays: Vec<_> = ["a", "b", "c", "d"].into_iter().map(|name| (name, ordered(&bench))).collect();
    let look = async |count: usize| {
        let mut held = Vec::new();
        for _ in 0..2 {
            held.clear();
            for (name, outbox) in &relays[..count] {
                held.push(hold(outbox, name).await);
            }
        }
        // What was given up in the last round's beginning is taken at its end; the first ones see it the next time.
        held
    };

    assert_eq!(look(2).await, [8, 8]);
    assert_eq!(look(4).await, [4, 4, 4, 4]);
    for (_, outbox) in &relays[1..] {
        outbox.release_partitions().await.expect("they take leave");
    }
    assert_eq!(look(1).await, [16]);
    fill(&bench, 10).await;
    assert!(ids(&claim(&relays[1].1, 10).await).is_empty(), "it took leave");
}

/// The fence: what a relay believes does not count.
async fn a_holder_whose_partitions_were_taken_gets_no_rows_of_them(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    fill(&bench, 100).await;
    let (paused, other) = (ordered(&bench), ordered(&bench));
    hold(&paused, "paused").await;

    // It sleeps for longer than its lease, and another one takes what is free.
    bench.run("UPDATE consign_partition SET lease_until = NOW(6) - INTERVAL 1 SECOND").await;
    bench.run("UPDATE consign_relay SET seen_until = NOW(6) - INTERVAL 1 SECOND").await;
    assert!(ids(&claim(&paused, 100).await).is_empty(), "its lease is over");
    assert_eq!(hold(&other, "other").await, 16);

    assert!(ids(&claim(&paused, 100).await).is_empty(), "they are another one's");
    // The same name under another token is not its own either.
    bench.run("UPDATE consign_partition SET relay = 'paused' WHERE partition_number < 15").await;
    assert!(ids(&claim(&paused, 100).await).is_empty(), "the token is another one's");
    let held = paused.hold_partitions("paused", LONG).await.expect("the look succeeds");
    assert_eq!((held.gone, held.taken), (8, 8), "half of them again, under a new token");
}

async fn a_killed_relays_partitions_are_taken_when_its_lease_ends(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let (killed, other) = (ordered(&bench), ordered(&bench));
    killed.hold_partitions("killed", Duration::from_millis(500)).await.expect("the look succeeds");

    assert_eq!(hold(&other, "other").await, 0);
    let status = other.order_status().await.expect("a status");
    assert_eq!(status.free, 0);
    eventually(PATIENCE, || async { hold(&other, "other").await == 16 }).await;
}

/// The look of another relay waits until a claim that began before it has committed.
async fn a_partition_does_not_change_hands_during_a_claim(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let (holder, other) = (ordered(&bench), ordered(&bench));
    hold(&holder, "holder").await;
    let mut claiming = bench.begin().await;
    let fence = "SELECT COUNT(*) FROM consign_partition WHERE relay = 'holder' LOCK IN SHARE MODE";
    sqlx::query(fence).fetch_one(&mut *claiming).await.expect("the fence is read");

    let look = other.hold_partitions("other", LONG).await;
    let renewal = holder.hold_partitions("holder", LONG).await;
    for waited in [look, renewal] {
        assert!(matches!(waited, Err(StoreError::Contended(_))), "{waited:?}");
    }
    claiming.rollback().await.expect("the claim ends");

    hold(&other, "other").await;
    hold(&holder, "holder").await;
    assert_eq!(hold(&other, "other").await, 8);
}

async fn relays_that_start_together_make_the_partitions_once(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let starting = (0..4).map(|number| {
        let outbox = ordered(&bench);
        tokio::spawn(async move {
            let name = format!("relay-{number}");
            loop {
                match outbox.hold_partitions(&name, LONG).await {
                    Ok(holdings) => return holdings,
                    Err(StoreError::Contended(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        })
    });
    for start in starting.collect::<Vec<_>>() {
        within(PATIENCE, start).await.expect("no panic");
    }

    assert_eq!(bench.number("SELECT COUNT(*) FROM consign_partition").await, 16);
    assert_eq!(bench.number("SELECT COUNT(*) FROM consign_partition WHERE relay IS NULL").await, 0);
}

async fn a_database_without_the_tables_says_to_migrate(server: Server) {
    let bench = Bench::contract(server).await;
    let outbox = ordered(&bench);

    let refused = outbox.hold_partitions("a", LONG).await;

    let Err(StoreError::Schema(text)) = refused else { panic!("{refused:?}") };
    assert!(text.contains("consign migrate"), "{text}");
    let without = bench.outbox().ordered(OrderSettings { partitions: 0, dead: DeadHead::Block });
    assert_eq!(
        without.hold_partitions("a", LONG).await.expect("nothing to do").partitions,
        Vec::<u16>::new()
    );
    bench.insert("event").await;
    assert_eq!(without.claim(request::request(1)).await.expect("the claim succeeds").claims.len(), 1);
}
