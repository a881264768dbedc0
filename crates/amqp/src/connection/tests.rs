//! The task of a connection over a stream that is no socket.

use std::num::NonZeroU16;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter, DuplexStream, duplex};
use tokio::time::{sleep, timeout};

use super::*;
use crate::consumer::{Consumer, DeliveryHandle};
use crate::properties::Properties;
use crate::publisher::{Publication, Verdict};

const CHANNEL_OPEN_OK: &[u8] = b"\x01\0\x01\0\0\0\x08\0\x14\0\x0b\0\0\0\0\xCE";

/// The server's side of the handshake.
async fn greet(server: &mut DuplexStream) {
    let mut header = [0; 8];
    server.read_exact(&mut header).await.unwrap();
    let start = b"\x00\x0a\x00\x0a\x00\x09\0\0\0\0\0\0\0\x05PLAIN\0\0\0\x05en_US";
    server.write_all(&[&[1, 0, 0, 0, 0, 0, 28][..], start, &[0xCE]].concat()).await.unwrap();
    frame(server).await;
    let tune = b"\x01\0\0\0\0\0\x0c\0\x0a\0\x1e\0\0\0\0\0\0\0\0\xCE";
    server.write_all(tune).await.unwrap();
    frame(server).await;
    frame(server).await;
    server.write_all(b"\x01\0\0\0\0\0\x05\0\x0a\0\x29\0\xCE").await.unwrap();
}

/// Whatever a heartbeat brings out must have come before.
const SOONER_THAN_A_HEARTBEAT: Duration = Duration::from_secs(5);

/// The payload of the next frame.
async fn frame(server: &mut DuplexStream) -> Vec<u8> {
    let read = async {
        let mut header = [0; 7];
        server.read_exact(&mut header).await.unwrap();
        let length = u32::from_be_bytes(header[3..].try_into().unwrap()) as usize;
        let mut payload = vec![0; length + 1];
        server.read_exact(&mut payload).await.unwrap();
        assert_eq!(payload.pop(), Some(0xCE));
        payload
    };
    timeout(SOONER_THAN_A_HEARTBEAT, read).await.expect("the client writes by itself")
}

/// TLS keeps bytes of its own above the socket, which only a flush brings out; so does this writer.
#[tokio::test(start_paused = true)]
async fn nothing_rests_in_a_layer_above_the_socket() {
    let (client, mut server) = duplex(64 * 1024);
    let options = ConnectOptions::default();
    let deadline = Instant::now() + options.connection_timeout;
    let answers = tokio::spawn(async move {
        greet(&mut server).await;
        // The clock is paused and leaps to the next timer when all wait: without a flush this would be
        // the end of the connection, not the request.
        let mut open = [0; 13];
        server.read_exact(&mut open).await.unwrap();
        assert_eq!(&open, b"\x01\0\x01\0\0\0\x05\0\x14\0\x0a\0\xCE");
        server.write_all(CHANNEL_OPEN_OK).await.unwrap();
        server
    });
    let connection = Connection::establish(BufWriter::new(client), &options, deadline).await.unwrap();
    let channel = connection.open_channel().await.unwrap();
    assert_eq!(channel.id().number, 1);
    answers.await.unwrap();
}

/// A small delivery on channel 1.
fn delivery(tag: u8) -> Vec<u8> {
    let method = [b"\0\x3c\0\x3c\x01c\0\0\0\0\0\0\0", &[tag][..], b"\0\0\0"].concat();
    let header = b"\x02\0\x01\0\0\0\x0e\0\x3c\0\0\0\0\0\0\0\0\0\0\0\0\xCE";
    [&b"\x01\0\x01\0\0\0\x11"[..], &method, &[0xCE], header].concat()
}

/// A consumer that holds this many deliveries on channel 1 and a publisher on channel 2, over a stream that takes
/// `room` bytes until somebody reads them.
async fn holding(room: usize, count: u8) -> (Consumer, Vec<DeliveryHandle>, Publisher, DuplexStream) {
    let (client, mut server) = duplex(room);
    let options = ConnectOptions::default();
    let deadline = Instant::now() + options.connection_timeout;
    let served = tokio::spawn(async move {
        greet(&mut server).await;
        let qos_ok = b"\x01\0\x01\0\0\0\x04\0\x3c\0\x0b\xCE";
        let consume_ok = b"\x01\0\x01\0\0\0\x06\0\x3c\0\x15\x01c\xCE";
        let second_open_ok = b"\x01\0\x02\0\0\0\x08\0\x14\0\x0b\0\0\0\0\xCE";
        let select_ok = b"\x01\0\x02\0\0\0\x04\0\x55\0\x0b\xCE";
        for answer in [CHANNEL_OPEN_OK, qos_ok, consume_ok, second_open_ok, select_ok] {
            frame(&mut server).await;
            server.write_all(answer).await.unwrap();
        }
        for tag in 1..=count {
            server.write_all(&delivery(tag)).await.unwrap();
        }
        server
    });
    let connection = Connection::establish(client, &options, deadline).await.unwrap();
    let prefetch = ConsumeOptions::new(NonZeroU16::new(count.into()).unwrap());
    let mut consumer = connection.open_consumer("points", prefetch).await.unwrap();
    let publisher = connection.open_publisher().await.unwrap();
    let mut handles = Vec::new();
    for _ in 0..count {
        handles.push(consumer.next().await.unwrap().handle);
    }
    (consumer, handles, publisher, served.await.unwrap())
}

/// The clock is paused: this is over when nobody has anything left to do.
async fn idle() {
    sleep(Duration::from_millis(1)).await;
}

fn ack(tag: u8, multiple: u8) -> Vec<u8> {
    [&b"\0\x3c\0\x50\0\0\0\0\0\0\0"[..], &[tag, multiple]].concat()
}

fn message(id: &str) -> Publication {
    Publication {
        exchange: String::new(),
        routing_key: String::new(),
        properties: Properties { message_id: Some(id.to_owned()), ..Properties::default() },
        body: vec![b'x'; 100].into(),
    }
}

/// An ack is 21 bytes: three go into this stream, and a part of the fourth.
#[tokio::test(start_paused = true)]
async fn acks_gather_while_the_socket_takes_nothing() {
    let (_consumer, handles, _publisher, mut server) = holding(64, 7).await;

    for handle in handles {
        handle.ack().unwrap();
        idle().await;
    }

    for (tag, multiple) in [(1, 0), (2, 0), (3, 0), (4, 0), (7, 1)] {
        assert_eq!(frame(&mut server).await, ack(tag, multiple), "ack of {tag}");
    }
}

/// A connection that always has something to publish never runs dry.
#[tokio::test(start_paused = true)]
async fn acks_go_before_what_is_published_after_the_socket_moved_again() {
    let (_consumer, mut handles, publisher, mut server) = holding(64, 1).await;
    let deadline = Instant::now() + Duration::from_mins(1);

    let _first = publisher.publish(message("first"), deadline);
    idle().await;
    handles.remove(0).ack().unwrap();
    idle().await;
    frame(&mut server).await;
    idle().await;
    let _second = publisher.publish(message("second"), deadline);
    idle().await;

    let (_header, body) = (frame(&mut server).await, frame(&mut server).await);
    assert_eq!(body, [b'x'; 100]);
    assert_eq!(frame(&mut server).await, ack(1, 0));
    assert_eq!(frame(&mut server).await[..4], *b"\0\x3c\0\x28");
}

/// The socket is full, what waited for it is taken back, and nothing but the ack is left to wait for it.
#[tokio::test(start_paused = true)]
async fn acks_behind_a_publish_that_was_taken_back_are_written() {
    let (_consumer, handles, publisher, mut server) = holding(63, 4).await;
    let mut handles = handles.into_iter();
    for handle in handles.by_ref().take(3) {
        handle.ack().unwrap();
        idle().await;
    }

    let late = publisher.publish(message("late"), Instant::now() + Duration::from_secs(1));
    idle().await;
    handles.next().unwrap().ack().unwrap();
    assert!(matches!(late.await, Verdict::NotSent { .. }));

    for tag in 1..=4 {
        assert_eq!(frame(&mut server).await, ack(tag, 0));
    }
}

/// However a publish and the end of its connection fall together, the publish is answered: one without a verdict
/// would hold its place in the window for ever. The system stops threads between any two instructions, most often
/// when there are more of them than processors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_publish_is_answered_while_the_connection_ends() {
    const ROUNDS: usize = 300;
    const PUBLISHING: usize = 8;
    for round in 0..ROUNDS {
        let (_consumer, _handles, publisher, server) = holding(64 * 1024, 1).await;
        let deadline = Instant::now() + Duration::from_mins(1);
        let publish_to_the_end = |publisher: Publisher| {
            std::thread::spawn(move || {
                let mut verdicts = Vec::new();
                while publisher.is_open() {
                    verdicts.push(publisher.publish(message("asked"), deadline));
                }
                verdicts
            })
        };
        let publishing: Vec<_> = (0..PUBLISHING).map(|_| publish_to_the_end(publisher.clone())).collect();
        drop(server);
        for verdicts in publishing {
            for verdict in tokio::task::spawn_blocking(|| verdicts.join().unwrap()).await.unwrap() {
                let answered = timeout(Duration::from_secs(20), verdict).await;
                assert!(answered.is_ok(), "no verdict in round {round}");
            }
        }
    }
}
