//! One request, one answer, one connection.
//!
//! Administration is rare, and a fresh connection knows nothing of restarts and half-read answers; so none is kept.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::command::{Command, FRAME_BYTES_MAX};
use super::error::AdminError;

/// Sends a request and waits for its answer, whatever its code, at most for `deadline` altogether.
pub(super) async fn exchange(
    address: &str,
    call: &'static str,
    request: &Command,
    deadline: Duration,
) -> Result<Command, AdminError> {
    match timeout(deadline, converse(address, call, request)).await {
        Ok(answered) => answered,
        Err(_) => Err(AdminError::TimedOut { address: address.to_owned(), call, deadline }),
    }
}

async fn converse(address: &str, call: &'static str, request: &Command) -> Result<Command, AdminError> {
    let unreachable = |source| AdminError::Unreachable { address: address.to_owned(), source };
    let broken = |source| AdminError::Broken { address: address.to_owned(), call, source };
    let malformed = |reason| AdminError::Malformed { address: address.to_owned(), call, reason };

    let mut stream = TcpStream::connect(address).await.map_err(unreachable)?;
    stream.write_all(&request.encode()).await.map_err(broken)?;
    loop {
        let length = stream.read_u32().await.map_err(broken)?;
        let length = usize::try_from(length).expect("u32 fits in usize on the platforms of tokio");
        if length > FRAME_BYTES_MAX {
            return Err(malformed(format!("a frame of {length} bytes, at most {FRAME_BYTES_MAX} are read")));
        }
        let frame = read_exactly(&mut stream, length).await.map_err(broken)?;
        let answer = Command::decode(&frame).map_err(malformed)?;
        // A server may send requests of its own; this client serves none.
        if answer.answers(request.opaque) {
            return Ok(answer);
        }
    }
}

/// Memory grows with what arrives, not with what a length claims.
async fn read_exactly(stream: &mut TcpStream, length: usize) -> io::Result<Bytes> {
    let mut frame = BytesMut::new();
    while frame.len() < length {
        let missing = u64::try_from(length - frame.len()).expect("a frame's length fits in 64 bits");
        if (&mut *stream).take(missing).read_buf(&mut frame).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(frame.freeze())
}
