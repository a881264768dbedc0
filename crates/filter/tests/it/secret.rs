//! S5: the password is shown nowhere, neither by the filter nor in its log.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use consign_core::filter::Hint;
use consign_filter::{FilterOptions, RedisFilter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tracing::subscriber::DefaultGuard;

use crate::operations::{hint, options, points, remember};
use crate::server::{PrivateServer, connect};

const PASSWORD: &str = "s3cret-one";

#[tokio::test]
async fn wrong_password_is_unknown_and_shown_nowhere() {
    let server = PrivateServer::start();
    let mut connection = connect(&server.url()).await;
    let locked = redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("right-one").to_owned();
    let () = locked.query_async(&mut connection).await.unwrap();

    ask_and_look_for_the_password(server.address(), "authentication failed").await;

    let right = format!("redis://:right-one@{}/", server.address());
    let filter = RedisFilter::new(options(&right)).unwrap();
    let operation = points("order-1", "1");
    remember(&filter, std::slice::from_ref(&operation)).await;
    assert_eq!(hint(&filter, &operation).await, Hint::Repeat);
}

/// Some servers and proxies write what they were sent into their errors.
#[tokio::test]
async fn password_that_the_server_echoes_is_shown_nowhere() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let echo = format!("-NOPE you are not allowed to do this as 'AUTH app {PASSWORD}'\r\n");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut answer = "+OK\r\n";
            let mut request = [0; 1024];
            while stream.read(&mut request).await.is_ok_and(|bytes| bytes > 0) {
                let _ = stream.write_all(answer.as_bytes()).await;
                answer = &echo;
            }
        }
    });

    ask_and_look_for_the_password(address, "the error NOPE").await;
}

/// Asks until the filter says in the log that it gave up, and why.
async fn ask_and_look_for_the_password(address: SocketAddr, reason: &str) {
    let (log, _scope) = Log::begin();
    let url = format!("redis://app:{PASSWORD}@{address}/");
    let settings = FilterOptions { deadline: Duration::from_secs(5), ..options(&url) };
    let filter = RedisFilter::new(settings.clone()).unwrap();

    for _ in 0..4 {
        assert_eq!(hint(&filter, &points("order-1", "1")).await, Hint::Unknown);
    }

    assert_eq!((filter.totals().errors, filter.totals().skipped), (3, 1));
    let said = format!("{filter:?} {settings:?} {}", log.text());
    assert!(said.contains("the filter of repeats does not answer") && said.contains(reason), "{said}");
    assert!(!said.contains(PASSWORD), "{said}");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Writes down everything that is said on this thread, on which the whole test runs.
    fn begin() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
