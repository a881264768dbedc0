//! Measures how many confirmed messages a second one channel publishes to a quorum queue.
//!
//! `cargo run --release --example publish_rate -- amqp://guest:guest@localhost/ 200000 128 256`
//! (uri, messages, window, bytes of a body).

use std::collections::VecDeque;
use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use consign_amqp::{
    ConnectOptions, Connection, FieldTable, Properties, Publication, QueueDeclaration, Verdict,
};
use tokio::time::Instant;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let options: ConnectOptions = arguments.next().ok_or("the first argument is an amqp uri")?.parse()?;
    let messages: usize = arguments.next().map_or(Ok(200_000), |text| text.parse())?;
    let window: usize = arguments.next().map_or(Ok(128), |text| text.parse())?;
    let body = Bytes::from(vec![b'x'; arguments.next().map_or(Ok(256), |text| text.parse())?]);

    let connection = Connection::open(&options).await?;
    let channel = connection.open_channel().await?;
    let queue = "consign.publish-rate";
    let quorum = FieldTable::new().with("x-queue-type", "quorum");
    channel.queue_declare(queue, &QueueDeclaration::durable(quorum)).await?;

    let publisher = connection.open_publisher().await?;
    let mut in_flight = VecDeque::with_capacity(window);
    let mut not_acked = 0_usize;
    let start = Instant::now();
    for number in 0..messages {
        if in_flight.len() == window
            && let Some(oldest) = in_flight.pop_front()
        {
            let verdict = oldest.await;
            not_acked += usize::from(!matches!(verdict, Verdict::Acked { .. }));
        }
        let properties = Properties {
            message_id: Some(number.to_string()),
            delivery_mode: Some(2),
            ..Properties::default()
        };
        let publication = Publication {
            exchange: String::new(),
            routing_key: queue.to_owned(),
            properties,
            body: body.clone(),
        };
        in_flight.push_back(Box::pin(publisher.publish(publication, start + Duration::from_mins(5))));
    }
    for waiting in in_flight {
        not_acked += usize::from(!matches!(waiting.await, Verdict::Acked { .. }));
    }
    let seconds = start.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a count of messages is far below 2^52")]
    let rate = messages as f64 / seconds;
    println!(
        "{messages} messages, window {window}: {rate:.0}/s, {not_acked} not acked, {}",
        connection.server().version
    );
    channel.queue_delete(queue, false, false).await?;
    connection.close(Duration::from_secs(5)).await;
    Ok(())
}
