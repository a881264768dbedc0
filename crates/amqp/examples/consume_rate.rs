//! Measures how many messages a second one consumer takes and acknowledges.
//!
//! `cargo run --release --example consume_rate -- amqp://guest:guest@localhost/ classic 100000 500 100`
//! (uri, queue type, messages, prefetch, deliveries that are acknowledged in one turn).

use std::error::Error;
use std::num::NonZeroU16;
use std::time::Duration;

use bytes::Bytes;
use consign_amqp::{
    ConnectOptions, Connection, ConsumeOptions, DeliveryHandle, FieldTable, Properties, Publication,
    QueueDeclaration, Verdict,
};
use tokio::time::Instant;

const QUEUE: &str = "consign.consume-rate";
const BODY_BYTES: usize = 256;
const WINDOW: usize = 1000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let options: ConnectOptions = arguments.next().ok_or("the first argument is an amqp uri")?.parse()?;
    let kind = arguments.next().unwrap_or_else(|| "classic".to_owned());
    let messages: usize = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let prefetch: NonZeroU16 = arguments.next().as_deref().unwrap_or("500").parse()?;
    let turn: usize = arguments.next().map_or(Ok(100), |text| text.parse())?;
    if turn > usize::from(prefetch.get()) {
        return Err("a turn longer than the prefetch never ends".into());
    }

    let connection = Connection::open(&options).await?;
    let channel = connection.open_channel().await?;
    let declaration = QueueDeclaration::durable(FieldTable::new().with("x-queue-type", kind.as_str()));
    channel.queue_declare(QUEUE, &declaration).await?;
    fill(&connection, messages).await?;

    let mut consumer = connection.open_consumer(QUEUE, ConsumeOptions::new(prefetch)).await?;
    let mut held: Vec<DeliveryHandle> = Vec::with_capacity(turn);
    let start = Instant::now();
    for number in 1..=messages {
        let delivery = consumer.next().await.ok_or("the consumer ended")?;
        held.push(delivery.handle);
        if held.len() == turn || number == messages {
            for handle in held.drain(..) {
                handle.ack()?;
            }
        }
    }
    // The broker answers behind everything that came before on this channel.
    consumer.cancel().await?;
    let seconds = start.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a count of messages is far below 2^52")]
    let rate = messages as f64 / seconds;
    println!(
        "{kind}, {messages} messages, prefetch {prefetch}, {turn} acks a turn: {rate:.0}/s, {}",
        connection.server().version
    );
    drop(consumer);
    channel.queue_delete(QUEUE, false, false).await?;
    connection.close(Duration::from_secs(5)).await;
    Ok(())
}

/// Publishes this many messages, with confirms.
async fn fill(connection: &Connection, messages: usize) -> Result<(), Box<dyn Error>> {
    let publisher = connection.open_publisher().await?;
    let deadline = Instant::now() + Duration::from_mins(5);
    let body = Bytes::from(vec![b'x'; BODY_BYTES]);
    let numbers: Vec<usize> = (0..messages).collect();
    for window in numbers.chunks(WINDOW) {
        let publish = |number: &usize| {
            let properties = Properties {
                message_id: Some(number.to_string()),
                delivery_mode: Some(2),
                ..Properties::default()
            };
            let publication = Publication {
                exchange: String::new(),
                routing_key: QUEUE.to_owned(),
                properties,
                body: body.clone(),
            };
            publisher.publish(publication, deadline)
        };
        let waiting: Vec<_> = window.iter().map(publish).collect();
        for verdict in waiting {
            let verdict = verdict.await;
            if !matches!(verdict, Verdict::Acked { .. }) {
                return Err(format!("a message was not confirmed: {verdict:?}").into());
            }
        }
    }
    Ok(())
}
