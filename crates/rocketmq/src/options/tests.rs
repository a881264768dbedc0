use super::*;

fn parse(url: &str) -> Result<Options, UrlError> {
    url.parse()
}

#[test]
fn every_part_is_percent_decoded() {
    let url = "rocketmqs://us%3Aer:p%40ss%2F@mq.example:5673,[::1]:9,mq_2?namespace=a%2Fb&request_timeout=7\
               &cacertfile=ca.pem&server_name_indication=mq&connection_timeout=1";
    let options = parse(url).unwrap();

    let credentials = options.credentials.as_ref().unwrap();
    assert_eq!((credentials.access_key.as_str(), credentials.secret_key.as_str()), ("us:er", "p@ss/"));
    let addresses = [Address::new("mq.example", 5673), Address::new("::1", 9), Address::new("mq_2", 8081)];
    assert_eq!(options.addresses, addresses);
    assert_eq!(options.namespace, "a/b");
    assert_eq!(options.request_timeout, Duration::from_secs(7));
    assert_eq!(options.connection_timeout, Duration::from_secs(1));
    let tls = options.tls.as_ref().unwrap();
    assert_eq!(tls.ca_file.as_deref(), Some("ca.pem".as_ref()));
    assert_eq!(tls.server_name.as_deref(), Some("mq"));
    assert_eq!(options.to_string(), "rocketmqs://us%3Aer:***@mq.example:5673,[::1]:9,mq_2:8081");
}

#[test]
fn plain_address_has_no_credentials_and_no_tls() {
    let options = parse("RocketMQ://mq").unwrap();

    assert_eq!(options, Options { addresses: vec![Address::new("mq", 8081)], ..Options::default() });
}

#[test]
fn secret_is_never_shown() {
    let options = parse("rocketmq://app:canary@mq").unwrap();

    assert!(!format!("{options:?} {options} {:?}", options.credentials).contains("canary"));
}

#[test]
fn mistakes_are_named() {
    for (url, error) in [
        ("amqp://mq", UrlError::Scheme),
        ("rocketmq://", UrlError::Host),
        ("rocketmq://a,,b", UrlError::Host),
        ("rocketmq://a b", UrlError::Host),
        ("rocketmq://[::1", UrlError::Host),
        ("rocketmq://[::1]x", UrlError::Host),
        ("rocketmq://a:0", UrlError::Port),
        ("rocketmq://a:65536", UrlError::Port),
        ("rocketmq://app@a", UrlError::Credentials),
        ("rocketmq://app:@a", UrlError::Credentials),
        ("rocketmq://:s@a", UrlError::Credentials),
        ("rocketmq://app:%zz@a", UrlError::Encoding("secret key")),
        ("rocketmq://a/topic", UrlError::Path),
        ("rocketmq://a?cacertfile=x", UrlError::Scheme),
        ("rocketmq://a?heartbeat=1", UrlError::UnknownKey("heartbeat".to_owned())),
        ("rocketmq://a:s@x?rest@host:1", UrlError::UnknownKey("...".to_owned())),
        ("rocketmq://a?request_timeout=0", UrlError::Value { key: "request_timeout", value: "0".to_owned() }),
        (
            "rocketmq://a?request_timeout=x",
            UrlError::Value { key: "request_timeout", value: "(no number)".to_owned() },
        ),
    ] {
        assert_eq!(parse(url), Err(error), "{url}");
    }
}
