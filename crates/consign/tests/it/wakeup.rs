//! Datagrams between producers and a relay: what they can do, and what they cannot.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use consign::shutdown::{ShutdownTrigger, shutdown};
use consign::wakeup::{Address, ListenError, Notifier, Wakeup, listen};
use tokio::task::JoinHandle;
use tokio::time::timeout;

struct Relay {
    first: Wakeup,
    second: Wakeup,
    trigger: ShutdownTrigger,
    listening: JoinHandle<()>,
}

impl Relay {
    fn start(address: &Address) -> Result<Self, ListenError> {
        let (first, second) = (Wakeup::default(), Wakeup::default());
        let wakeups =
            BTreeMap::from([("first".to_owned(), first.clone()), ("second".to_owned(), second.clone())]);
        let (trigger, asked) = shutdown();
        let listening = tokio::spawn(listen(address.clone(), wakeups, asked)?);
        Ok(Self { first, second, trigger, listening })
    }

    async fn stop(self) {
        self.trigger.request();
        self.listening.await.unwrap();
    }
}

async fn woken(wakeup: &Wakeup) {
    timeout(Duration::from_secs(20), wakeup.woken()).await.expect("a wake-up comes");
}

async fn sleeps(wakeup: &Wakeup) -> bool {
    timeout(Duration::from_millis(50), wakeup.woken()).await.is_err()
}

fn unix(path: &Path) -> Address {
    Address::unix(path.into()).unwrap()
}

#[tokio::test]
async fn a_packet_wakes_all_outboxes_or_the_one_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let address = unix(&folder.path().join("wakeup.sock"));
    let relay = Relay::start(&address).unwrap();

    Notifier::new(address.clone()).unwrap().notify();
    woken(&relay.first).await;
    woken(&relay.second).await;

    Notifier::new(address.clone()).unwrap().for_outbox("second").notify();
    woken(&relay.second).await;
    assert!(sleeps(&relay.first).await);

    UnixDatagram::unbound()
        .unwrap()
        .send_to(b"\xff\x00 nonsense", folder.path().join("wakeup.sock"))
        .unwrap();
    woken(&relay.first).await;
    relay.stop().await;
}

#[tokio::test]
async fn packets_come_through_udp_as_well() {
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = Address::Udp(free);
    let relay = Relay::start(&address).unwrap();

    Notifier::new(address).unwrap().for_outbox("first").notify();

    woken(&relay.first).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_notifier_without_a_listener_neither_fails_nor_waits() {
    let folder = tempfile::tempdir().unwrap();
    let notifier = Notifier::new(unix(&folder.path().join("nobody.sock"))).unwrap();
    let full = folder.path().join("full.sock");
    let _deaf = UnixDatagram::bind(&full).unwrap();
    let to_deaf = Notifier::new(unix(&full)).unwrap();

    for _ in 0..10_000 {
        notifier.notify();
        to_deaf.notify();
    }
}

#[tokio::test]
async fn the_socket_is_for_owner_and_group_and_goes_with_its_relay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wakeup.sock");
    let relay = Relay::start(&unix(&path)).unwrap();

    let mode = std::fs::metadata(&path).unwrap().permissions().mode();

    assert_eq!(mode & 0o777, 0o660);
    relay.stop().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn the_socket_of_a_dead_relay_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wakeup.sock");
    drop(UnixDatagram::bind(&path).unwrap());
    assert!(path.exists(), "a socket that nobody closed in order leaves its file");

    let relay = Relay::start(&unix(&path)).unwrap();
    Notifier::new(unix(&path)).unwrap().notify();

    woken(&relay.first).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_second_relay_takes_the_socket_over_once_the_first_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let address = unix(&folder.path().join("wakeup.sock"));
    let first = Relay::start(&address).unwrap();
    let second = Relay::start(&address).expect("a relay whose address is taken polls");
    let notifier = Notifier::new(address).unwrap();

    notifier.notify();
    woken(&first.first).await;
    assert!(sleeps(&second.first).await);
    first.stop().await;

    woken(&second.first).await;
    assert!(sleeps(&second.first).await, "taking over is one wake-up");
    notifier.notify();
    woken(&second.first).await;
    second.stop().await;
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious");
    std::fs::write(&path, "content").unwrap();

    let refused = Relay::start(&unix(&path)).err().expect("refused");

    assert!(matches!(refused, ListenError::NotSocket(_)), "{refused}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "content");
    let nowhere = Relay::start(&unix(&folder.path().join("no/such/folder.sock"))).err().expect("refused");
    assert!(matches!(nowhere, ListenError::Refused(..)), "{nowhere}");
}

/// The system holds only so many packets: what is dropped is followed by what is not.
#[tokio::test]
async fn a_flood_of_packets_ends_in_a_wake_up() {
    const PACKETS: usize = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let address = unix(&folder.path().join("wakeup.sock"));
    let relay = Relay::start(&address).unwrap();
    let notifier = Notifier::new(address).unwrap();
    let flood = tokio::task::spawn_blocking(move || (0..PACKETS).for_each(|_| notifier.notify()));

    flood.await.unwrap();

    woken(&relay.first).await;
    relay.stop().await;
}
