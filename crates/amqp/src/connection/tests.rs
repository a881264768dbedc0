//! The task of a connection over a stream that is no socket.

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter, duplex};

use super::*;

/// TLS keeps bytes of its own above the socket, which only a flush brings out; so does this writer.
#[tokio::test(start_paused = true)]
async fn nothing_rests_in_a_layer_above_the_socket() {
    let (client, mut server) = duplex(64 * 1024);
    let options = ConnectOptions::default();
    let deadline = Instant::now() + options.connection_timeout;
    let answers = tokio::spawn(async move {
        let mut buffer = [0; 4096];
        server.read_exact(&mut buffer[..8]).await.unwrap();
        let start = b"\x00\x0a\x00\x0a\x00\x09\0\0\0\0\0\0\0\x05PLAIN\0\0\0\x05en_US";
        server.write_all(&[&[1, 0, 0, 0, 0, 0, 28][..], start, &[0xCE]].concat()).await.unwrap();
        assert!(server.read(&mut buffer).await.unwrap() > 0);
        let tune = b"\x01\0\0\0\0\0\x0c\0\x0a\0\x1e\0\0\0\0\0\0\0\0\xCE";
        server.write_all(tune).await.unwrap();
        assert!(server.read(&mut buffer).await.unwrap() > 0);
        server.write_all(b"\x01\0\0\0\0\0\x05\0\x0a\0\x29\0\xCE").await.unwrap();
        // The clock is paused and leaps to the next timer when all wait: without a flush this would be
        // the end of the connection, not the request.
        let mut open = [0; 13];
        server.read_exact(&mut open).await.unwrap();
        assert_eq!(&open, b"\x01\0\x01\0\0\0\x05\0\x14\0\x0a\0\xCE");
        server.write_all(b"\x01\0\x01\0\0\0\x08\0\x14\0\x0b\0\0\0\0\xCE").await.unwrap();
        server
    });
    let connection = Connection::establish(BufWriter::new(client), &options, deadline).await.unwrap();
    let channel = connection.open_channel().await.unwrap();
    assert_eq!(channel.id().number, 1);
    answers.await.unwrap();
}
