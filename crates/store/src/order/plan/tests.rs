use super::*;

fn limits(rows: u32) -> Limits {
    Limits::new(rows, 1 << 20)
}

/// A due row of the aggregate whose head is `head`.
fn row(id: &str, head: &str) -> Waiting {
    Waiting { id: id.into(), head: head.into(), payload_bytes: 10, ..Waiting::default() }
}

fn rows(head: &str, ids: &[&str]) -> Vec<Waiting> {
    ids.iter().map(|id| row(id, head)).collect()
}

fn chains(lists: &[Vec<Waiting>]) -> BTreeMap<String, Vec<Waiting>> {
    lists.iter().map(|list| (list[0].head.clone(), list.clone())).collect()
}

fn ids(plan: &Plan) -> Vec<&str> {
    plan.rows.iter().map(|row| row.id.as_str()).collect()
}

fn deferred(plan: &Plan) -> Vec<(i64, Vec<&str>)> {
    plan.deferred.iter().map(|(delay, ids)| (*delay, ids.iter().map(String::as_str).collect())).collect()
}

#[test]
fn heads_of_different_aggregates_are_taken_as_they_come() {
    let page = [row("b1", "b1"), row("a1", "a1"), row("free", "free")];

    assert_eq!(chains_wanted(&page, limits(10)), []);
    let plan = plan(&page, &BTreeMap::new(), limits(10));

    assert_eq!(ids(&plan), ["b1", "a1", "free"]);
    assert!(plan.deferred.is_empty() && !plan.more && !plan.suspect);
}

#[test]
fn a_chain_is_taken_in_the_order_of_the_aggregate_not_of_the_page() {
    let page = [row("a3", "a1"), row("a1", "a1"), row("b1", "b1"), row("a2", "a1")];

    assert_eq!(chains_wanted(&page, limits(10)), [("a1".to_owned(), 4)]);
    let plan = plan(&page, &chains(&[rows("a1", &["a1", "a2", "a3"])]), limits(10));

    assert_eq!(ids(&plan), ["a1", "b1", "a2", "a3"]);
}

#[test]
fn a_head_outside_the_page_is_taken_before_its_followers() {
    let page = rows("a1", &["a2"]);

    assert_eq!(chains_wanted(&page, limits(10)), [("a1".to_owned(), 2)]);
    let plan = plan(&page, &chains(&[rows("a1", &["a1", "a2"])]), limits(10));

    assert_eq!(ids(&plan), ["a1", "a2"]);
}

#[test]
fn nothing_passes_a_head_that_is_not_due() {
    let page = [row("a2", "a1"), row("b1", "b1"), row("a3", "a1")];
    let mut chain = rows("a1", &["a1", "a2", "a3"]);
    chain[0].wait_micros = 8_000_000;

    let plan = plan(&page, &chains(&[chain]), limits(10));

    assert_eq!(ids(&plan), ["b1"]);
    assert_eq!(deferred(&plan), [(8_388_608, vec!["a2", "a3"])], "as long as the head, and a little");
}

#[test]
fn a_chain_ends_at_the_first_row_that_is_not_due_and_those_behind_it_wait_for_that_one() {
    let page = rows("a1", &["a1", "a3"]);
    let mut chain = rows("a1", &["a1", "a2", "a3"]);
    chain[1].wait_micros = 1000;

    let plan = plan(&page, &chains(&[chain]), limits(10));

    assert_eq!(ids(&plan), ["a1"]);
    assert_eq!(deferred(&plan), [(1024, vec!["a3"])]);
}

#[test]
fn rows_behind_more_rows_than_were_read_are_left_alone() {
    let page = rows("a1", &["a1", "a9"]);
    let chain = rows("a1", &["a1", "a2", "a3"]);

    let plan = plan(&page, &chains(&[chain]), limits(10));

    assert_eq!(ids(&plan), ["a1", "a2", "a3"], "due rows of the chain are taken, in the page or not");
    assert!(plan.deferred.is_empty());
}

#[test]
fn a_row_that_is_sending_holds_its_aggregate_up_and_no_other() {
    let held = |id: &str| Waiting { held: true, ..row(id, "a2") };
    let page = [held("a2"), row("b1", "b1"), held("a3")];

    assert_eq!(chains_wanted(&page, limits(10)), []);
    let plan = plan(&page, &BTreeMap::new(), limits(10));

    assert_eq!(ids(&plan), ["b1"]);
    assert!(plan.deferred.is_empty(), "they are no hindrance: nothing is behind them");
}

#[test]
fn held_rows_move_when_they_hide_others() {
    let limits = limits(8);
    let page: Vec<Waiting> =
        (0..limits.page).map(|place| Waiting { held: true, ..row(&format!("a{place}"), "a0") }).collect();

    let crowded = plan(&page, &BTreeMap::new(), limits);
    let mut mixed = page.clone();
    for (place, row) in mixed.iter_mut().take(5).enumerate() {
        *row = super::tests::row(&format!("b{place}"), &format!("b{place}"));
    }
    let mixed = plan(&mixed, &BTreeMap::new(), limits);

    assert_eq!(crowded.deferred.values().flatten().count(), limits.page);
    assert!(crowded.more && crowded.rows.is_empty());
    assert_eq!(mixed.rows.len(), 5);
    assert!(mixed.deferred.is_empty(), "enough was found: they are left where they are");
}

#[test]
fn a_chain_that_began_to_be_sent_since_the_page_was_read_is_left_alone() {
    let page = rows("a1", &["a1", "a2", "a3"]);
    let held = rows("a1", &["a1", "a3"]).into_iter().map(|row| Waiting { held: true, ..row }).collect();

    let seen_sending = plan(&page, &chains(&[held]), limits(10));
    let head_gone = plan(&page, &BTreeMap::from([("a1".to_owned(), rows("a3", &["a3"]))]), limits(10));
    let all_gone = plan(&page, &BTreeMap::new(), limits(10));

    for plan in [seen_sending, head_gone, all_gone] {
        assert_eq!((ids(&plan), deferred(&plan)), (vec![], vec![]));
    }
}

#[test]
fn rows_behind_a_dead_one_wait_for_people() {
    let dead = |id: &str, head: &str| Waiting { dead: true, ..row(id, head) };
    let blocked = [dead("a2", "a2")];
    let page = [dead("a2", "a2"), dead("a3", "a2")];

    let alone = plan(&blocked, &BTreeMap::new(), limits(10));
    let both = plan(&page, &chains(&[page.to_vec()]), limits(10));

    assert_eq!((ids(&alone).len(), ids(&both).len()), (0, 0));
    assert_eq!(alone.deferred.values().flatten().count(), 1);
    let waits = deferred(&both);
    assert_eq!(waits[0].1, ["a2", "a3"]);
    assert!((30_000_000..34_000_000).contains(&waits[0].0), "{waits:?}");
}

/// An operator requeued the first of two DEAD rows.
#[test]
fn a_requeued_head_goes_and_what_is_behind_the_other_dead_row_stays() {
    let behind = Waiting { dead: true, ..row("a3", "a1") };
    let page = [row("a1", "a1"), behind.clone()];

    let plan = plan(&page, &chains(&[vec![row("a1", "a1"), behind]]), limits(10));

    assert_eq!(ids(&plan), ["a1"]);
    assert_eq!(deferred(&plan)[0].1, ["a3"]);
}

#[test]
fn a_suspect_goes_alone() {
    let suspect = |id: &str, head: &str| Waiting { suspect: true, ..row(id, head) };
    let first = [suspect("a1", "a1"), row("b1", "b1")];
    let second = [row("b1", "b1"), suspect("a1", "a1"), row("c1", "c1")];
    let follower = rows("a1", &["a1", "a2", "a3"]);
    let mut links = follower.clone();
    links[1].suspect = true;
    let mut head = follower.clone();
    head[0].suspect = true;

    let alone = plan(&first, &BTreeMap::new(), limits(10));
    assert_eq!((ids(&alone), alone.suspect, alone.more), (vec!["a1"], true, true));
    let before = plan(&second, &BTreeMap::new(), limits(10));
    assert_eq!((ids(&before), before.suspect), (vec!["b1"], false));
    assert_eq!(ids(&plan(&follower, &chains(&[links]), limits(10))), ["a1"], "a chain ends before it");
    let begun = plan(&follower, &chains(&[head]), limits(10));
    assert_eq!((ids(&begun), begun.suspect), (vec!["a1"], true), "nothing follows it");
}

#[test]
fn rows_and_bytes_cut_the_ends_of_chains() {
    let page = [rows("a1", &["a1", "a2", "a3"]), rows("b1", &["b1", "b2"])].concat();
    let read = chains(&[rows("a1", &["a1", "a2", "a3"]), rows("b1", &["b1", "b2"])]);

    let by_rows = plan(&page, &read, limits(3));
    let by_bytes = plan(&page, &read, Limits { bytes: 45, ..limits(10) });
    let at_least_one = plan(&page, &read, Limits { bytes: 1, ..limits(10) });

    assert_eq!((ids(&by_rows), by_rows.more), (vec!["a1", "b1", "a2"], true));
    assert_eq!((ids(&by_bytes), by_bytes.more), (vec!["a1", "b1", "a2", "b2"], true));
    assert_eq!(ids(&at_least_one), ["a1"]);
}

#[test]
fn a_full_page_says_that_more_may_be_due() {
    let limits = limits(8);
    let page: Vec<Waiting> =
        (0..limits.page).map(|place| row(&format!("e{place}"), &format!("e{place}"))).collect();

    let plan = plan(&page, &BTreeMap::new(), limits);

    assert_eq!((plan.rows.len(), plan.more), (8, true));
}

#[test]
fn a_chain_ends_before_its_first_row_that_was_not_had() {
    let planned = |id: &str, head: &str| Planned { id: id.into(), head: head.into() };
    let rows = [
        planned("a1", "a1"),
        planned("b1", "b1"),
        planned("a2", "a1"),
        planned("b2", "b1"),
        planned("a3", "a1"),
    ];
    let without = |lost: &str| -> Vec<String> {
        unbroken(&rows, |id| id != lost).into_iter().map(|row| row.id.clone()).collect()
    };

    assert_eq!(without("a1"), ["b1", "b2"]);
    assert_eq!(without("a2"), ["a1", "b1", "b2"]);
    assert_eq!(without("none"), ["a1", "b1", "a2", "b2", "a3"]);
}

#[test]
fn delays_fall_into_few_and_never_shorter_ones() {
    let mut distinct = HashSet::new();
    for micros in (1..400_000_000).step_by(9973) {
        let rounded = rounded(micros);
        assert!(rounded >= micros && rounded <= micros + micros / 8 + 1, "{micros} became {rounded}");
        distinct.insert(rounded);
    }
    assert!(distinct.len() < 160, "{}", distinct.len());
}

/// Against a table played through in memory: whatever is read, no row is taken before an earlier one of its aggregate.
#[test]
fn no_plan_takes_a_row_before_an_earlier_unfinished_one() {
    let mut seed = 7_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..2000 {
        let mut table: Vec<(u64, &str, Waiting)> = Vec::new();
        for place in 0..draw(14) {
            let status = ["NEW", "NEW", "NEW", "SENDING", "DEAD", "SENT"][usize::try_from(draw(6)).unwrap()];
            let wait_micros = [-5, -1, -1, 70][usize::try_from(draw(4)).unwrap()];
            let suspect = draw(9) == 0;
            let id = format!("e{place:02}");
            table.push((
                draw(4),
                status,
                Waiting { id, wait_micros, suspect, payload_bytes: draw(9), ..Waiting::default() },
            ));
        }
        let seen = |place: usize| {
            let (aggregate, _, row) = &table[place];
            let mine = || table.iter().enumerate().filter(|(_, other)| other.0 == *aggregate);
            let head = mine().find(|(_, other)| other.1 == "NEW").map(|(_, other)| other.2.id.clone());
            Waiting {
                head: head.unwrap(),
                held: mine().any(|(_, other)| other.1 == "SENDING"),
                dead: mine().any(|(before, other)| before < place && other.1 == "DEAD"),
                ..row.clone()
            }
        };
        let fresh: Vec<Waiting> =
            (0..table.len()).filter(|&place| table[place].1 == "NEW").map(seen).collect();
        let limits = Limits { page: 5, ..Limits::new(4, 20) };
        let mut page: Vec<Waiting> = fresh.iter().filter(|row| row.wait_micros <= 0).cloned().collect();
        page.sort_by_key(|row| draw(100) + row.payload_bytes);
        page.truncate(limits.page);
        let read: BTreeMap<String, Vec<Waiting>> = chains_wanted(&page, limits)
            .into_iter()
            .map(|(head, length)| {
                let links = fresh.iter().filter(|row| row.head == head).take(length as usize);
                (head.clone(), links.cloned().collect())
            })
            .collect();

        let plan = plan(&page, &read, limits);

        let mut taken: HashSet<String> = HashSet::new();
        for planned in &plan.rows {
            let place = table.iter().position(|row| row.2.id == planned.id).unwrap();
            for (aggregate, status, row) in &table[..place] {
                let unfinished = ["NEW", "SENDING", "DEAD"].contains(status) && !taken.contains(&row.id);
                assert!(!(*aggregate == table[place].0 && unfinished), "{planned:?} before {row:?}");
            }
            assert!(table[place].2.wait_micros <= 0, "{planned:?} is not due");
            taken.insert(planned.id.clone());
        }
        assert!(plan.rows.len() <= limits.rows);
        let moved = plan.deferred.values().flatten().collect::<Vec<_>>();
        assert!(moved.iter().all(|id| !taken.contains(*id)), "{plan:?}");
    }
}
