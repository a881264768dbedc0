//! TLS to a real proxy.

use consign_rocketmq::{CallError, Options, Producer, Readiness, TopicKind};
use tokio::time::timeout;

use super::{PATIENCE, connected, environment, message, soon, topic};

const TLS_URL: &str = "CONSIGN_TEST_ROCKETMQ_TLS_URL";
const TLS_CA: &str = "CONSIGN_TEST_ROCKETMQ_TLS_CA";

fn secure(ca_file: &str) -> Options {
    let mut options: Options =
        environment(TLS_URL).parse().unwrap_or_else(|error| panic!("{TLS_URL}: {error}"));
    let tls = options.tls.as_mut().expect("the url says rocketmqs://");
    tls.ca_file = Some(ca_file.into());
    // The route names the proxy by its address, the certificate by its name.
    tls.server_name = Some("localhost".to_owned());
    options
}

#[tokio::test]
async fn own_authority_is_trusted_and_another_one_is_not() {
    let topic = topic("tls", TopicKind::Normal).await;
    let right = Producer::start(&secure(&environment(TLS_CA)), [topic.clone()]).await.unwrap();
    let stranger = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/stranger-ca.pem");
    let wrong = Producer::start(&secure(stranger), [topic.clone()]).await.unwrap();

    connected(right.readiness()).await;
    right.send(message(&topic, "1"), soon()).await.unwrap();
    let refused = wrong.send(message(&topic, "2"), soon()).await.unwrap_err();

    assert!(matches!(&refused, CallError::NotSent { reason } if reason.contains("tls failed")), "{refused}");
    let mut readiness = wrong.readiness();
    let waited = readiness.wait_for(|readiness| matches!(readiness, Readiness::NotConnected(_)));
    drop(timeout(PATIENCE, waited).await.expect("it is said that there is no connection").unwrap());
}
