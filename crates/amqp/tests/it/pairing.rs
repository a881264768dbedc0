//! Each publish gets its own verdict, whatever the order of returns and confirms.

use consign_amqp::{NotSent, Publisher, Verdict};
use tokio::task::JoinHandle;

use crate::peer::{
    Peer, Tune, ack, connected, far, message, method, nack, publishing, returned, short_text, soon,
};

/// Publishes ids `m1` to `m<count>`.
fn publish(publisher: &Publisher, count: usize) -> Vec<JoinHandle<Verdict>> {
    (1..=count).map(|number| tokio::spawn(publisher.publish(message(&format!("m{number}")), far()))).collect()
}

async fn verdicts(waiting: Vec<JoinHandle<Verdict>>) -> Vec<Verdict> {
    let mut verdicts = Vec::with_capacity(waiting.len());
    for verdict in waiting {
        verdicts.push(soon("a verdict", verdict).await.unwrap());
    }
    verdicts
}

fn acked(tag: u64) -> Verdict {
    Verdict::Acked { tag: tag.try_into().unwrap() }
}

fn unroutable() -> Verdict {
    Verdict::Returned { code: 312, text: "NO_ROUTE".to_owned() }
}

/// Publishes three, has the peer answer with `answers`, and returns the verdicts.
async fn three(answers: &[Vec<u8>], sliced: bool) -> Vec<Verdict> {
    let (_connection, publisher, mut peer) = publishing().await;
    peer.sliced = sliced;
    let waiting = publish(&publisher, 3);
    assert_eq!(peer.published_ids(3).await, ["m1", "m2", "m3"]);
    peer.send(&answers.concat()).await;
    verdicts(waiting).await
}

/// libs.md H1: the broker returned only m2, then acked all with one frame; the client libraries put the
/// return on a random one of the three.
#[tokio::test]
async fn return_before_a_multiple_ack_belongs_to_its_message() {
    let verdicts = three(&[returned(1, "m2"), ack(1, 3, true)], false).await;
    assert_eq!(verdicts, [acked(1), unroutable(), acked(3)]);
}

/// libs.md H1: the first ack after the return is not the one of the returned message.
#[tokio::test]
async fn return_before_single_acks_belongs_to_its_message() {
    let answers = [returned(1, "m2"), ack(1, 1, false), ack(1, 2, false), ack(1, 3, false)];
    assert_eq!(three(&answers, false).await, [acked(1), unroutable(), acked(3)]);
}

/// libs.md H1: two returns, acks out of order.
#[tokio::test]
async fn two_returns_and_acks_out_of_order_are_told_apart() {
    let answers =
        [returned(1, "m3"), returned(1, "m1"), ack(1, 2, false), ack(1, 3, false), ack(1, 1, false)];
    assert_eq!(three(&answers, false).await, [unroutable(), acked(2), unroutable()]);
}

#[tokio::test]
async fn frames_cut_into_single_bytes_mean_the_same() {
    let answers =
        [returned(1, "m2"), ack(1, 1, false), nack(1, 2, false), returned(1, "m3"), ack(1, 0, true)];
    assert_eq!(three(&answers, true).await, [acked(1), Verdict::Nacked, unroutable()]);
}

#[tokio::test]
async fn nack_of_several_covers_what_is_outstanding_only() {
    let answers = [ack(1, 2, false), nack(1, 3, true)];
    assert_eq!(three(&answers, false).await, [Verdict::Nacked, acked(2), Verdict::Nacked]);
}

/// Every order in which the broker may return m2 and confirm three messages one by one.
#[tokio::test]
async fn every_order_of_single_acks_and_one_return_is_understood() {
    for order in [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]] {
        let own = order.iter().position(|tag| *tag == 2).unwrap();
        for place in 0..=own {
            let mut answers: Vec<_> = order.iter().map(|tag| ack(1, *tag, false)).collect();
            answers.insert(place, returned(1, "m2"));
            let verdicts = three(&answers, false).await;
            assert_eq!(verdicts, [acked(1), unroutable(), acked(3)], "acks {order:?}, return at {place}");
        }
    }
}

/// `B16` (amqp-rs/lapin#254, #252; postwait/node-amqp#335): a thousand in flight, every seventh unroutable.
#[tokio::test]
async fn every_seventh_of_a_thousand_is_returned_and_no_other() {
    for multiple in [true, false] {
        let (_connection, publisher, mut peer) = publishing().await;
        let waiting = publish(&publisher, 1000);
        peer.published_ids(1000).await;
        let mut answers = Vec::new();
        // The broker may return in any order; here from the last to the first.
        for number in (1..=1000).rev().filter(|number| number % 7 == 0) {
            answers.extend(returned(1, &format!("m{number}")));
        }
        if multiple {
            answers.extend(ack(1, 640, true));
            answers.extend(ack(1, 1000, true));
        } else {
            // 617 and 1000 have no common divisor, so that this visits every tag once.
            (0..1000).for_each(|step| answers.extend(ack(1, step * 617 % 1000 + 1, false)));
        }
        peer.send(&answers).await;
        for (number, verdict) in (1..).zip(verdicts(waiting).await) {
            let expected = if number % 7 == 0 { unroutable() } else { acked(number) };
            assert_eq!(verdict, expected, "m{number}");
        }
    }
}

/// `B18` (streadway/amqp#351): return and ack in one segment, the executor busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn return_and_ack_in_one_segment_are_taken_in_order() {
    let busy: Vec<_> = (0..4)
        .map(|_| {
            tokio::spawn(async {
                loop {
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let (_connection, publisher, mut peer) = publishing().await;
    for tag in 1..=2000 {
        let routed = tag % 2 == 0;
        let id = format!("m{tag}");
        let waiting = publisher.publish(message(&id), far());
        assert_eq!(peer.published().await.message_id, id);
        let answers =
            if routed { ack(1, tag, false) } else { [returned(1, &id), ack(1, tag, false)].concat() };
        peer.send(&answers).await;
        let expected = if routed { acked(tag) } else { unroutable() };
        assert_eq!(soon("a verdict", waiting).await, expected);
    }
    busy.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn publishes_with_one_id_share_their_return() {
    let (_connection, publisher, mut peer) = publishing().await;
    let first = publisher.publish(message("same"), far());
    let second = publisher.publish(message("same"), far());
    peer.published_ids(2).await;
    peer.send(&[returned(1, "same"), ack(1, 2, true)].concat()).await;
    assert_eq!(soon("a verdict", first).await, unroutable());
    assert_eq!(soon("a verdict", second).await, unroutable());
}

#[tokio::test]
async fn messages_are_queued_by_the_call_in_call_order() {
    let (_connection, publisher, mut peer) = publishing().await;
    let first = publisher.publish(message("m1"), far());
    let second = publisher.publish(message("m2"), far());
    drop(first);
    assert_eq!(peer.published_ids(2).await, ["m1", "m2"]);
    peer.send(&ack(1, 2, true)).await;
    assert_eq!(soon("a verdict", second).await, acked(2));
}

/// Has the peer send `frames` after m1 to m3 and ack 1, and checks that the channel is given up.
async fn assert_given_up(frames: Vec<u8>, complaint: &str) {
    let (_connection, publisher, mut peer) = publishing().await;
    let waiting = publish(&publisher, 3);
    peer.published_ids(3).await;
    peer.send(&[ack(1, 1, false), frames, ack(1, 3, true)].concat()).await;
    let verdicts = verdicts(waiting).await;
    assert_eq!(verdicts[0], acked(1));
    for verdict in &verdicts[1..] {
        let Verdict::ChannelClosed { code: 505, text, in_flight: 2 } = verdict else {
            panic!("{verdict:?} for {complaint}");
        };
        assert!(text.contains(complaint), "{text}");
    }
    let close = peer.expect(1, 20, 40).await;
    assert_eq!(close[..2], 505_u16.to_be_bytes());
    let late = publisher.publish(message("m4"), far());
    assert!(matches!(soon("a verdict", late).await, Verdict::NotSent { reason: NotSent::Unavailable(_) }));
}

#[tokio::test]
async fn unknown_return_gives_the_channel_up() {
    assert_given_up(returned(1, "stranger"), "returned a message that is not outstanding").await;
    assert_given_up(returned(1, "m1"), "returned a message that is not outstanding").await;
}

#[tokio::test]
async fn confirm_of_a_tag_that_is_not_outstanding_gives_the_channel_up() {
    assert_given_up(ack(1, 4, true), "confirmed tag 4").await;
    assert_given_up(ack(1, 1, false), "confirmed tag 1").await;
    assert_given_up(nack(1, 1, true), "confirmed tag 1").await;
    assert_given_up(ack(1, 0, false), "confirmed tag 0").await;
}

#[tokio::test]
async fn return_without_a_message_id_gives_the_channel_up() {
    let start = method(1, 60, 50, &[&312_u16.to_be_bytes(), &short_text("NO_ROUTE"), &[0, 0]]);
    let frames = [start, crate::peer::content(1, &[0, 0], b"", 1)].concat();
    assert_given_up(frames, "returned a message that is not outstanding").await;
}

/// A header table that does not decode here must not hide whose return it is.
#[tokio::test]
async fn return_with_undecodable_headers_still_finds_its_message() {
    let headers = crate::peer::table(&[("odd", b"Z???")]);
    let properties = [&0x2080_u16.to_be_bytes()[..], &headers, &short_text("m2")].concat();
    let start = method(1, 60, 50, &[&312_u16.to_be_bytes(), &short_text("NO_ROUTE"), &[0, 0]]);
    let frames = [start, crate::peer::content(1, &properties, b"", 1), ack(1, 3, true)].concat();
    assert_eq!(three(&[frames], false).await, [acked(1), unroutable(), acked(3)]);
}

#[tokio::test]
async fn confirm_in_the_middle_of_a_return_ends_the_connection() {
    let (connection, publisher, mut peer) = publishing().await;
    let waiting = publish(&publisher, 2);
    peer.published_ids(2).await;
    let start = method(1, 60, 50, &[&312_u16.to_be_bytes(), &short_text("NO_ROUTE"), &[0, 0]]);
    peer.send(&[start, ack(1, 2, true)].concat()).await;
    for verdict in verdicts(waiting).await {
        assert!(matches!(verdict, Verdict::ConnectionLost { in_flight: 2, .. }), "{verdict:?}");
    }
    assert_eq!(soon("the end", connection.closed()).await.code, 505);
    assert_eq!(peer.expect(0, 10, 50).await[..2], 505_u16.to_be_bytes());
}

fn is_invalid(verdict: &Verdict, word: &str) -> bool {
    matches!(verdict, Verdict::NotSent { reason: NotSent::Invalid(text) } if text.contains(word))
}

#[tokio::test]
async fn messages_amqp_cannot_express_are_refused_before_sending() {
    let (connection, mut peer) = connected(Tune { frame_max: 4096, ..Tune::default() }).await;
    let publisher = peer.publisher(&connection).await;
    let long = "x".repeat(256);
    let mut cases = Vec::new();
    let mut case = |word, change: &dyn Fn(&mut consign_amqp::Publication)| {
        let mut publication = message("m");
        change(&mut publication);
        cases.push((word, publication));
    };
    case("routing_key", &|publication| publication.routing_key.clone_from(&long));
    case("exchange", &|publication| publication.exchange.clone_from(&long));
    case("message_id", &|publication| publication.properties.message_id = Some(long.clone()));
    case("message_id", &|publication| publication.properties.message_id = None);
    case("message_id", &|publication| publication.properties.message_id = Some(String::new()));
    case("type", &|publication| publication.properties.kind = Some(long.clone()));
    case("header key", &|publication| publication.properties.headers.insert(long.clone(), 1));
    case("header frame", &|publication| publication.properties.headers.insert("h", "y".repeat(4096)));
    for (word, publication) in cases {
        let verdict = soon("a verdict", publisher.publish(publication, far())).await;
        assert!(is_invalid(&verdict, word), "{verdict:?} does not name {word}");
    }
    let good = publisher.publish(message("good"), far());
    assert_eq!(peer.published().await.message_id, "good");
    peer.send(&ack(1, 1, false)).await;
    assert_eq!(soon("a verdict", good).await, acked(1));
}

/// Reads one publish and checks that no frame is larger than agreed.
async fn frames_within(peer: &mut Peer, frame_max: usize) -> Vec<u8> {
    let mut body = Vec::new();
    assert_eq!(peer.frame().await.kind, 1);
    let header = peer.frame().await;
    let size = u64::from_be_bytes(header.payload[4..12].try_into().unwrap());
    while (body.len() as u64) < size {
        let frame = peer.frame().await;
        assert!(frame.payload.len() + 8 <= frame_max);
        body.extend(frame.payload);
    }
    body
}

#[tokio::test]
async fn bodies_are_split_at_the_agreed_frame_size() {
    let (connection, mut peer) = connected(Tune { frame_max: 4096, ..Tune::default() }).await;
    let publisher = peer.publisher(&connection).await;
    for (tag, size) in (1..).zip([0, 1, 4087, 4088, 4089, 8176, 16 * 1024, 16 * 1024 + 1, 100_000]) {
        let body: Vec<u8> = (0..size).map(|index| u8::try_from(index % 251).unwrap()).collect();
        let publication = consign_amqp::Publication { body: body.clone().into(), ..message("m") };
        let waiting = publisher.publish(publication, far());
        assert_eq!(frames_within(&mut peer, 4096).await, body, "size {size}");
        peer.send(&ack(1, tag, false)).await;
        assert_eq!(soon("a verdict", waiting).await, acked(tag));
    }
}
