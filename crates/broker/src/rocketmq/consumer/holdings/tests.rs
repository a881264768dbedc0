//! Slots, time, order: what a source does with what it holds.

use super::*;

const INVISIBLE: Duration = Duration::from_mins(1);

fn at(seconds: u64) -> Monotonic {
    Monotonic::new(Duration::from_secs(seconds))
}

fn after(milliseconds: u64) -> Monotonic {
    Monotonic::new(Duration::from_millis(milliseconds))
}

fn arrival(id: &'static str, group: &str) -> Arrival<&'static str> {
    let message = Message { id: Some(id.to_owned()), delivery_count: 1, ..Message::default() };
    Arrival { message, group: group.to_owned(), handle: id }
}

fn holdings(ordered: bool) -> Holdings<&'static str> {
    Holdings::new(Terms { prefetch: 4, invisible: INVISIBLE, ordered })
}

/// A receive asked for and answered at this second.
fn receive(holdings: &mut Holdings<&'static str>, ids: &[&'static str], group: &str, second: u64) {
    let arrivals = ids.iter().map(|id| arrival(id, group)).collect();
    holdings.reserve(ids.len());
    holdings.received(ids.len(), arrivals, at(second), at(second));
}

/// The next message's ticket and id.
fn next(holdings: &mut Holdings<&'static str>, now: Monotonic) -> Option<(Ticket, String)> {
    let (ticket, message) = holdings.next(now)?;
    Some((ticket, message.id.expect("every arrival has an id")))
}

fn take(holdings: &mut Holdings<&'static str>, id: &str, now: Monotonic) -> Ticket {
    let (ticket, taken) = next(holdings, now).unwrap_or_else(|| panic!("{id} is not handed out"));
    assert_eq!(taken, id);
    ticket
}

fn asks(calls: &[Call<&'static str>]) -> Vec<(&'static str, Ask)> {
    calls.iter().map(|call| (call.handle, call.ask)).collect()
}

const RETURN_NOW: Ask = Ask::Settle(Settlement::Return(Duration::ZERO));
const ACK: Ask = Ask::Settle(Settlement::Ack);

#[test]
fn what_is_unsettled_and_what_is_asked_for_fill_the_same_slots() {
    let mut holdings = holdings(false);
    assert_eq!(holdings.room(), 4);
    assert_eq!(holdings.reserve(3), 3);
    assert_eq!(holdings.reserve(3), 1);
    holdings.received(1, Vec::new(), at(0), at(0));
    assert_eq!(holdings.room(), 1);
    holdings.received(3, vec![arrival("a", "")], at(0), at(0));
    assert_eq!(holdings.room(), 3);

    let a = take(&mut holdings, "a", at(1));
    holdings.settle(a, Settlement::Ack, at(1)).unwrap();
    let calls = holdings.calls(9, at(1));
    assert_eq!(asks(&calls), [("a", ACK)]);
    assert_eq!(holdings.room(), 3, "the broker has not answered");
    holdings.answered(a, ACK, Answer::Done, at(1), at(1));

    assert_eq!(holdings.room(), 4);
    assert!(holdings.idle());
}

#[test]
fn a_message_is_handed_out_once_and_settled_once() {
    let mut holdings = holdings(false);
    receive(&mut holdings, &["a"], "", 0);
    let a = take(&mut holdings, "a", at(0));

    assert_eq!(next(&mut holdings, at(0)), None);
    holdings.settle(a, Settlement::Ack, at(0)).unwrap();
    assert_eq!(holdings.settle(a, Settlement::Return(Duration::ZERO), at(0)), Err(Lapsed));
    assert_eq!(asks(&holdings.calls(9, at(0))), [("a", ACK)]);
    assert!(holdings.calls(9, at(1)).is_empty());
}

#[test]
fn a_message_that_waited_until_its_time_was_over_is_not_handed_out() {
    let mut holdings = holdings(false);
    receive(&mut holdings, &["a"], "", 0);
    // The extension is asked for and never answered.
    assert_eq!(asks(&holdings.calls(9, at(45))), [("a", Ask::Extend(INVISIBLE * 2))]);

    assert_eq!(next(&mut holdings, at(60)), None);
    assert!(holdings.idle());
}

/// apache/rocketmq-clients#951: extending is for the exception, and rare even then.
#[test]
fn a_slow_handlers_message_is_extended_late_for_twice_the_time_and_a_few_times_at_most() {
    let mut holdings = holdings(false);
    receive(&mut holdings, &["a"], "", 0);
    let a = take(&mut holdings, "a", at(0));
    let mut extensions = Vec::new();
    while let Some(moment) = holdings.next_moment() {
        for call in holdings.calls(9, moment) {
            extensions.push((moment.since_origin().as_secs(), call.ask));
            holdings.answered(a, call.ask, Answer::Extended("newer"), moment, moment);
        }
    }

    let spans = [45, 45 + 90, 45 + 90 + 180, 45 + 90 + 180 + 360];
    let expected =
        spans.iter().zip([2, 4, 8, 16]).map(|(moment, times)| (*moment, Ask::Extend(INVISIBLE * times)));
    assert_eq!(extensions, expected.collect::<Vec<_>>());
    assert!(!holdings.idle(), "it is still out");
}

#[test]
fn after_an_extension_only_the_new_handle_is_used() {
    let mut holdings = holdings(false);
    receive(&mut holdings, &["old"], "", 0);
    let ticket = take(&mut holdings, "old", at(0));
    let extend = holdings.calls(9, at(45)).remove(0);
    holdings.answered(ticket, extend.ask, Answer::Extended("new"), at(45), at(46));

    holdings.settle(ticket, Settlement::Ack, at(100)).unwrap();
    assert_eq!(asks(&holdings.calls(9, at(100))), [("new", ACK)]);
}

/// apache/rocketmq#9515: an extension is refused under load, and the old handle is still good.
#[test]
fn the_old_handle_is_kept_when_an_extension_fails_and_one_more_try_follows() {
    for failed in [Answer::Again("old"), Answer::Refused("old")] {
        let mut holdings = holdings(false);
        receive(&mut holdings, &["old"], "", 0);
        let ticket = take(&mut holdings, "old", at(0));
        let extend = holdings.calls(9, at(45)).remove(0);
        holdings.answered(ticket, extend.ask, failed, at(45), at(50));

        assert!(holdings.calls(9, at(54)).is_empty());
        let second = holdings.calls(9, at(55)).remove(0);
        assert_eq!((second.handle, second.ask), ("old", Ask::Extend(INVISIBLE * 2)));
        holdings.answered(ticket, second.ask, Answer::Again("old"), at(55), at(55));
        assert!(holdings.calls(9, at(59)).is_empty(), "no third try");
        holdings.settle(ticket, Settlement::Ack, at(59)).unwrap();
        assert_eq!(asks(&holdings.calls(9, at(59))), [("old", ACK)]);
    }
}

#[test]
fn a_settlement_waits_for_an_extension_that_is_under_way_and_uses_what_it_brings() {
    let mut holdings = holdings(false);
    receive(&mut holdings, &["old"], "", 0);
    let ticket = take(&mut holdings, "old", at(0));
    let extend = holdings.calls(9, at(45)).remove(0);

    holdings.settle(ticket, Settlement::Ack, at(46)).unwrap();
    assert!(holdings.calls(9, at(46)).is_empty());
    holdings.answered(ticket, extend.ask, Answer::Extended("new"), at(45), at(47));

    assert_eq!(asks(&holdings.calls(9, at(47))), [("new", ACK)]);
}

/// An expired handle is no error of the effect: the message comes again and finds its marker.
#[test]
fn a_settlement_after_the_time_is_over_makes_no_call() {
    let mut holdings = holdings(false);
    holdings.reserve(1);
    holdings.received(1, vec![arrival("a", "")], at(0), at(10));
    let a = take(&mut holdings, "a", at(10));
    let extend = holdings.calls(9, at(45)).remove(0);
    holdings.answered(a, extend.ask, Answer::Again("a"), at(45), at(59));

    // The broker's count began somewhere between asking and answer: until 70 the handle may be good.
    assert_eq!(holdings.settle(a, Settlement::Ack, at(70)), Err(Lapsed));
    assert!(holdings.calls(9, at(70)).is_empty());
    assert!(holdings.idle());
}

#[test]
fn a_handle_that_the_broker_calls_lapsed_is_done_with() {
    let mut holdings = holdings(false);
    receive(&mut holdings, &["a", "b"], "", 0);
    let (a, b) = (take(&mut holdings, "a", at(0)), take(&mut holdings, "b", at(0)));
    let extends = holdings.calls(9, at(45));
    for call in extends {
        holdings.answered(call.ticket, call.ask, Answer::Lapsed, at(45), at(45));
    }
    assert_eq!(holdings.settle(a, Settlement::Ack, at(46)), Err(Lapsed));
    assert_eq!(holdings.settle(b, Settlement::Return(Duration::ZERO), at(46)), Err(Lapsed));
    assert!(holdings.idle());
}

#[test]
fn an_acknowledgement_without_an_answer_is_sent_again_while_the_handle_may_be_good() {
    let mut holdings = holdings(false);
    receive(&mut holdings, &["a"], "", 0);
    let a = take(&mut holdings, "a", at(0));
    holdings.settle(a, Settlement::Ack, at(0)).unwrap();
    let mut sent = Vec::new();
    let mut now = at(0);
    loop {
        for call in holdings.calls(9, now) {
            sent.push(now.since_origin().as_millis());
            holdings.answered(a, call.ask, Answer::Again("a"), now, now);
        }
        let Some(moment) = holdings.next_moment().filter(|_| !holdings.idle()) else { break };
        now = moment;
    }

    assert_eq!(sent[..6], [0, 100, 300, 700, 1500, 3100]);
    assert!(sent.iter().all(|moment| *moment < 60_000), "{sent:?}");
}

#[test]
fn giving_back_is_tried_three_times_and_left_to_time_then() {
    let mut holdings = holdings(false);
    receive(&mut holdings, &["a"], "", 0);
    let a = take(&mut holdings, "a", at(0));
    let delay = Duration::from_secs(5);
    holdings.settle(a, Settlement::Return(delay), at(0)).unwrap();
    for moment in [0, 100, 300] {
        let call = holdings.calls(9, after(moment)).remove(0);
        assert_eq!(call.ask, Ask::Settle(Settlement::Return(delay)));
        holdings.answered(a, call.ask, Answer::Again("a"), after(moment), after(moment));
    }
    assert!(holdings.idle());
}

/// Its record is committed, so that the dead-letter topic is a favour and not a condition.
#[test]
fn a_message_that_the_dead_letter_topic_refuses_is_acknowledged() {
    let mut holdings = holdings(false);
    receive(&mut holdings, &["a"], "", 0);
    let a = take(&mut holdings, "a", at(0));
    holdings.settle(a, Settlement::PutAside, at(0)).unwrap();
    let call = holdings.calls(9, at(0)).remove(0);
    assert_eq!(call.ask, Ask::Settle(Settlement::PutAside));
    holdings.answered(a, call.ask, Answer::Refused("a"), at(0), at(0));

    assert_eq!(asks(&holdings.calls(9, at(1))), [("a", ACK)]);
}

#[test]
fn a_stop_gives_back_what_nobody_has_and_leaves_the_rest_to_its_receipts() {
    for ordered in [false, true] {
        let mut holdings = holdings(ordered);
        receive(&mut holdings, &["a", "b", "c"], "group", 0);
        let a = take(&mut holdings, "a", at(0));
        holdings.reserve(1);
        holdings.stop(at(1));

        assert_eq!(holdings.room(), 0);
        assert_eq!(next(&mut holdings, at(1)), None);
        assert_eq!(asks(&holdings.calls(9, at(1))), [("b", RETURN_NOW), ("c", RETURN_NOW)]);
        // A receive that was under way.
        holdings.received(1, vec![arrival("d", "group")], at(0), at(2));
        assert_eq!(asks(&holdings.calls(9, at(2))), [("d", RETURN_NOW)]);
        holdings.settle(a, Settlement::Ack, at(3)).unwrap();
        assert_eq!(asks(&holdings.calls(9, at(3))), [("a", ACK)]);
    }
}

#[test]
fn in_an_ordered_group_the_next_message_comes_when_the_one_before_it_is_settled() {
    let mut holdings = holdings(true);
    receive(&mut holdings, &["a1", "a2"], "a", 0);
    receive(&mut holdings, &["b1"], "b", 0);
    let a1 = take(&mut holdings, "a1", at(0));
    take(&mut holdings, "b1", at(0));
    assert_eq!(next(&mut holdings, at(0)), None);

    holdings.settle(a1, Settlement::Ack, at(1)).unwrap();

    take(&mut holdings, "a2", at(1));
}

#[test]
fn a_refused_message_keeps_its_place_is_counted_and_comes_again_after_its_pause() {
    let mut holdings = holdings(true);
    receive(&mut holdings, &["a1", "a2"], "a", 0);
    let a1 = take(&mut holdings, "a1", at(0));
    holdings.settle(a1, Settlement::Return(Duration::from_secs(5)), at(1)).unwrap();

    assert!(holdings.calls(9, at(5)).is_empty(), "the broker is not bothered");
    assert_eq!(next(&mut holdings, at(5)), None);
    assert_eq!(holdings.next_moment(), Some(at(6)));
    assert!(holdings.calls(9, at(6)).is_empty());
    let (again, message) = holdings.next(at(6)).unwrap();

    assert_eq!((message.id.as_deref(), message.delivery_count, message.redelivered), (Some("a1"), 2, true));
    holdings.settle(again, Settlement::PutAside, at(7)).unwrap();
    take(&mut holdings, "a2", at(7));
}

/// The broker delivers an ordered queue again from its first message that was not acknowledged.
#[test]
fn nothing_overtakes_a_message_that_has_to_come_again_from_the_broker() {
    let mut holdings = holdings(true);
    receive(&mut holdings, &["a1", "a2"], "a", 0);
    let a1 = take(&mut holdings, "a1", at(0));
    // Both extensions fail, and the whole queue comes again.
    for moment in [45, 53, 60] {
        for call in holdings.calls(9, at(moment)) {
            holdings.answered(call.ticket, call.ask, Answer::Again(call.handle), at(moment), at(moment));
        }
    }
    receive(&mut holdings, &["a1 again", "a2 again"], "a", 61);

    let returned = holdings.settle(a1, Settlement::Return(Duration::ZERO), at(62));

    assert_eq!(returned, Err(Lapsed));
    let first = take(&mut holdings, "a1 again", at(62));
    assert_eq!(next(&mut holdings, at(62)), None);
    holdings.settle(first, Settlement::Ack, at(63)).unwrap();
    take(&mut holdings, "a2 again", at(63));
}

#[test]
fn those_behind_a_lapsed_message_go_back_with_it_even_while_they_are_held() {
    let mut holdings = holdings(true);
    holdings.reserve(1);
    holdings.received(1, vec![arrival("a1", "a")], at(0), at(0));
    receive(&mut holdings, &["a2"], "a", 30);
    let a1 = take(&mut holdings, "a1", at(30));
    let extend = holdings.calls(9, at(45)).remove(0);
    holdings.answered(a1, extend.ask, Answer::Lapsed, at(45), at(46));

    assert_eq!(holdings.settle(a1, Settlement::Return(Duration::ZERO), at(47)), Err(Lapsed));

    assert_eq!(next(&mut holdings, at(47)), None);
    assert_eq!(asks(&holdings.calls(9, at(47))), [("a2", RETURN_NOW)]);
}

/// A copy that came while the first one was with a slow handler waits behind it: the marker is there when it is looked at.
#[test]
fn a_copy_waits_behind_the_message_that_is_still_out() {
    let mut holdings = holdings(true);
    receive(&mut holdings, &["a1"], "a", 0);
    let a1 = take(&mut holdings, "a1", at(0));
    receive(&mut holdings, &["a1 again"], "a", 61);
    assert_eq!(next(&mut holdings, at(61)), None);

    assert_eq!(holdings.settle(a1, Settlement::Ack, at(62)), Err(Lapsed));

    take(&mut holdings, "a1 again", at(62));
}

#[test]
fn a_stop_ends_pauses_and_gives_the_refused_back_to_the_broker() {
    let mut holdings = holdings(true);
    receive(&mut holdings, &["a1", "a2"], "a", 0);
    let a1 = take(&mut holdings, "a1", at(0));
    holdings.settle(a1, Settlement::Return(Duration::from_secs(30)), at(0)).unwrap();
    holdings.stop(at(1));

    assert_eq!(asks(&holdings.calls(9, at(1))), [("a1", RETURN_NOW), ("a2", RETURN_NOW)]);
    assert_eq!(next(&mut holdings, at(31)), None);
}
