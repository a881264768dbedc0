//! Whether a server answers in its own protocol, which says more than an open port.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::catalog::Service;
use super::rocketmq;

const CONNECT_LIMIT: Duration = Duration::from_secs(1);
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Sends the greeting of the service's protocol and checks the beginning of the answer.
pub fn answers(service: Service, base: u16) -> bool {
    let port = service.port(base);
    match service {
        // The server speaks first: length, sequence number, protocol version 10. An error has 255 there.
        Service::Mysql | Service::Mariadb => exchange(port, b"", 5).is_some_and(|bytes| bytes[4] == 10),
        // The startup message of protocol 3.0; `R` asks for authentication or grants it.
        Service::Postgres => exchange(port, POSTGRES_STARTUP, 1).is_some_and(|bytes| bytes == b"R"),
        Service::Redis => {
            exchange(port, b"PING\r\n", 5).is_some_and(|bytes| bytes == b"+PONG")
                && service.tls_port(base).is_none_or(|port| connect(port).is_some())
        }
        Service::Nats => exchange(port, b"", 5).is_some_and(|bytes| bytes == b"INFO "),
        // A method frame, connection.start.
        Service::Rabbitmq
        | Service::Rabbitmq4
        | Service::Rabbitmq4b
        | Service::Rabbitmq43
        | Service::Rabbitmqc1
        | Service::Rabbitmqc2
        | Service::Rabbitmqc3 => {
            exchange(port, b"AMQP\x00\x00\x09\x01", 1).is_some_and(|bytes| bytes == [1])
                && service.tls_port(base).is_none_or(|port| connect(port).is_some())
        }
        // The proxy accepts clients before the broker has told the name server of its topics.
        Service::Rocketmq | Service::Rocketmqsync | Service::Rocketmqflush => {
            let greeting = exchange(port, HTTP2_START, 4);
            greeting.is_some_and(|bytes| bytes[3] == HTTP2_SETTINGS)
                && service.rocketmq_ports(base).is_some_and(|ports| knows_topics(ports.name_server))
        }
    }
}

/// The client's preface of HTTP/2 with empty settings.
const HTTP2_START: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Type of the frame that a server begins with.
const HTTP2_SETTINGS: u8 = 4;

/// Whether a RocketMQ name server has a route to the topics that every broker is started with.
fn knows_topics(port: u16) -> bool {
    let fields = json!({ "topic": rocketmq::TOPICS[0].0 });
    // 105 asks for the route of a topic; the answer's code is 0 when there is one.
    let header = json!({ "code": 105, "extFields": fields, "flag": 0, "language": "OTHER", "opaque": 1,
                         "serializeTypeCurrentRPC": "JSON", "version": 0 });
    remoting_exchange(port, &header).is_some_and(|answer| answer["code"] == 0)
}

/// Sends a command without a body in RocketMQ's older protocol; gives the header of the answer.
fn remoting_exchange(port: u16, header: &Value) -> Option<Value> {
    let header = header.to_string();
    let length = u32::try_from(header.len()).ok()?;
    // The length of all that follows, then of the header; its first byte, zero, says JSON.
    let request = [&(length + 4).to_be_bytes()[..], &length.to_be_bytes(), header.as_bytes()].concat();
    let mut stream = connect(port)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT)).ok()?;
    stream.write_all(&request).ok()?;
    let mut lengths = [0; 8];
    stream.read_exact(&mut lengths).ok()?;
    let [_, _, _, _, 0, high, middle, low] = lengths else { return None };
    let mut answer = vec![0; usize::try_from(u32::from_be_bytes([0, high, middle, low])).ok()?];
    stream.read_exact(&mut answer).ok()?;
    serde_json::from_slice(&answer).ok()
}

const POSTGRES_STARTUP: &[u8] =
    b"\x00\x00\x00\x29\x00\x03\x00\x00user\x00postgres\x00database\x00postgres\x00\x00";

/// Whether a server could listen on the port now. The port may be held for a moment by the near end of some
/// outgoing connection, which looks closed from outside.
pub fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Asks an Erlang port mapper to end; it refuses while a node is registered with it.
pub fn end_epmd(port: u16) {
    // Length and KILL_REQ.
    let _ = exchange(port, b"\x00\x01k", 2);
}

fn exchange(port: u16, greeting: &[u8], answer_length: usize) -> Option<Vec<u8>> {
    let mut stream = connect(port)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT)).ok()?;
    stream.write_all(greeting).ok()?;
    let mut answer = vec![0; answer_length];
    stream.read_exact(&mut answer).ok()?;
    Some(answer)
}

fn connect(port: u16) -> Option<TcpStream> {
    let stream =
        TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), CONNECT_LIMIT).ok()?;
    // Inside the range of outgoing ports a connection can reach itself when nobody listens.
    (stream.local_addr().ok() != stream.peer_addr().ok()).then_some(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn startup_message_states_its_own_length() {
        assert_eq!(POSTGRES_STARTUP.len(), 0x29);
    }

    #[test]
    fn port_with_a_listener_is_not_free() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();

        assert!(!is_free(listener.local_addr().unwrap().port()));
    }
}
