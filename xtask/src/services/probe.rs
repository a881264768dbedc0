//! Whether a server answers in its own protocol, which says more than an open port.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::catalog::Service;

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
    }
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
