//! The protocol against a scripted peer.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use std::collections::BTreeMap;

use super::stored::tests::Written;
use super::*;

/// What the peer does with one connection.
enum Turn {
    /// Answers with this code, these fields, this remark and this body.
    Answer(i32, &'static [(&'static str, &'static str)], Option<&'static str>, Vec<u8>),
    /// Writes these bytes and closes.
    Raw(Vec<u8>),
    /// Closes without a word.
    Close,
    /// Keeps the connection open and says nothing.
    Silence,
}

fn json(body: &str) -> Turn {
    Turn::Answer(0, &[], None, body.as_bytes().to_vec())
}

fn refusal(code: i32, remark: &'static str) -> Turn {
    Turn::Answer(code, &[], Some(remark), Vec::new())
}

/// A peer that takes one connection per turn; its task ends with the requests it read.
async fn peer(turns: Vec<Turn>) -> (Admin, JoinHandle<Vec<Command>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let task = tokio::spawn(async move {
        let mut requests = Vec::new();
        let mut silent = Vec::new();
        for turn in turns {
            let (mut stream, _) = listener.accept().await.unwrap();
            let request = read_command(&mut stream).await;
            let opaque = request.opaque;
            requests.push(request);
            match turn {
                Turn::Answer(code, fields, remark, body) => {
                    let fields = fields
                        .iter()
                        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                        .collect();
                    let answer = Command {
                        code,
                        opaque,
                        flag: 1,
                        remark: remark.map(str::to_owned),
                        fields,
                        body: body.into(),
                    };
                    stream.write_all(&answer.encode()).await.unwrap();
                }
                Turn::Raw(bytes) => stream.write_all(&bytes).await.unwrap(),
                Turn::Close => drop(stream),
                Turn::Silence => silent.push(stream),
            }
        }
        requests
    });
    let options = AdminOptions { deadline: Duration::from_secs(20), ..AdminOptions::new(&address).unwrap() };
    (Admin::new(options), task)
}

async fn read_command(stream: &mut TcpStream) -> Command {
    let length = usize::try_from(stream.read_u32().await.unwrap()).unwrap();
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame).await.unwrap();
    Command::decode(&frame.into()).unwrap()
}

fn server(admin: &Admin) -> String {
    admin.options().name_servers[0].clone()
}

#[tokio::test]
async fn a_topic_is_made_on_every_master_of_the_cluster_and_on_no_replica() {
    let (broker, asked) = peer(vec![json(""), json("")]).await;
    let address = server(&broker);
    let cluster = format!(
        r#"{{"brokerAddrTable":{{
            "a":{{"brokerAddrs":{{0:"{address}",1:"127.0.0.1:1"}},"brokerName":"a","cluster":"one"}},
            "b":{{"brokerAddrs":{{0:"{address}"}},"brokerName":"b","cluster":"one"}},
            "c":{{"brokerAddrs":{{0:"127.0.0.1:1"}},"brokerName":"c","cluster":"other"}}}},
          "clusterAddrTable":{{"one":["a","b"],"other":["c"]}}}}"#
    );
    let (names, _) = peer(vec![json(&cluster)]).await;
    let admin = Admin::new(AdminOptions { cluster: Some("one".to_owned()), ..names.options().clone() });

    admin.create_topic("points", TopicKind::Fifo, 8).await.unwrap();

    let requests = asked.await.unwrap();
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert_eq!(request.code, 17);
        let field = |name: &str| request.fields.get(name).map(String::as_str);
        assert_eq!(field("topic"), Some("points"));
        assert_eq!((field("readQueueNums"), field("writeQueueNums")), (Some("8"), Some("8")));
        assert_eq!(field("perm"), Some("6"));
        assert_eq!(field("order"), Some("true"));
        assert_eq!(field("attributes"), Some("+message.type=FIFO"));
    }
}

#[tokio::test]
async fn a_cluster_without_a_master_is_an_error_that_names_it() {
    let cluster =
        r#"{"brokerAddrTable":{"a":{"brokerAddrs":{1:"127.0.0.1:1"},"brokerName":"a","cluster":"one"}}}"#;
    let (names, _) = peer(vec![json(cluster)]).await;
    let admin = Admin::new(AdminOptions { cluster: Some("one".to_owned()), ..names.options().clone() });

    let error = admin.create_group("g", true, 3).await.unwrap_err();

    assert!(matches!(&error, AdminError::NoBroker { cluster: Some(name) } if name == "one"), "{error}");
}

#[tokio::test]
async fn a_missing_topic_or_group_is_none_and_other_refusals_are_errors() {
    let (admin, _) = peer(vec![
        refusal(17, "no topic"),
        json(r#"{"subscriptionGroupTable":{},"dataVersion":{"counter":{"value":1}}}"#),
        refusal(17, "no route"),
        refusal(16, "topic closed\n\tat java.lang.Thread"),
    ])
    .await;
    let address = server(&admin);

    assert_eq!(admin.topic(&address, "t").await.unwrap(), None);
    assert_eq!(admin.group(&address, "g").await.unwrap(), None);
    assert_eq!(admin.route("t").await.unwrap(), None);
    let error = admin.topic(&address, "t").await.unwrap_err();
    assert!(error.is_refusal(16));
    let text = error.to_string();
    assert!(text.contains("refused for a topic with code 16: topic closed"), "{text}");
    assert!(!text.contains("java"), "{text}");
}

#[tokio::test]
async fn what_the_broker_keeps_is_read() {
    let route = r#"{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"a","cluster":"one"}],
        "filterServerTable":{},"queueDatas":[
        {"brokerName":"b","perm":6,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1},
        {"brokerName":"a","perm":4,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":4}]}"#;
    let (admin, _) = peer(vec![
        json(
            r#"{"attributes":{"message.type":"TRANSACTION"},"order":false,"perm":2,"readQueueNums":8,
                "topicFilterType":"SINGLE_TAG","topicName":"t","topicSysFlag":0,"writeQueueNums":4}"#,
        ),
        json(&format!(
            r#"{{"subscriptionGroupTable":{{{}}},"dataVersion":{{"stateVersion":0}}}}"#,
            group_json("g")
        )),
        json(route),
        json(r#"{"table":{"brokerVersionDesc":"V5_3_3","commitLogDiskRatio":"0.94"}}"#),
        Turn::Answer(0, &[], None, b"flushDiskType=SYNC_FLUSH\n".to_vec()),
        Turn::Answer(0, &[("offset", "12")], None, Vec::new()),
        refusal(22, "not found"),
    ])
    .await;
    let address = server(&admin);

    let topic = admin.topic(&address, "t").await.unwrap().unwrap();
    assert_eq!((topic.kind(), topic.read_queues, topic.write_queues), (TopicKind::Transaction, 8, 4));
    assert_eq!((topic.readable(), topic.writable()), (false, true));
    assert_eq!(admin.group(&address, "g").await.unwrap().unwrap(), GroupConfig::new("g", true, 3));
    let route = admin.route("t").await.unwrap().unwrap();
    assert_eq!(route.queues[0].master.as_deref(), Some("127.0.0.1:10911"));
    assert_eq!((route.queues[1].broker.as_str(), route.queues[1].master.as_deref()), ("b", None));
    let version = Some(ServerVersion { major: 5, minor: 3, patch: 3 });
    let runtime = admin.runtime(&address).await.unwrap();
    assert_eq!(runtime, BrokerRuntime { version, disk_used: Some(0.94) });
    assert_eq!(admin.settings(&address).await.unwrap().text("flushDiskType"), Some("SYNC_FLUSH"));
    assert_eq!(admin.end_offset(&address, "t", 0).await.unwrap(), 12);
    assert_eq!(admin.group_offset(&address, "g", "t", 0).await.unwrap(), None);
}

fn group_json(name: &str) -> String {
    format!(
        r#""{name}":{{"consumeEnable":true,"consumeMessageOrderly":true,"groupName":"{name}","retryMaxTimes":3,"brokerId":0}}"#
    )
}

#[tokio::test]
async fn groups_told_in_pages_are_put_together() {
    let page = |names: &[&str]| {
        let groups: Vec<String> = names.iter().map(|name| group_json(name)).collect();
        let body = format!(
            r#"{{"dataVersion":{{"counter":{{"value":2}},"timestamp":5}},"subscriptionGroupTable":{{{}}}}}"#,
            groups.join(",")
        );
        Turn::Answer(0, &[("totalGroupNum", "3")], None, body.into_bytes())
    };
    let (admin, asked) = peer(vec![page(&["a", "b"]), page(&["c"]), page(&["a"]), page(&[])]).await;
    let address = server(&admin);

    let groups = admin.groups(&address).await.unwrap();
    assert_eq!(groups.into_keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    // A page without anything new ends it, whatever the total says.
    assert_eq!(admin.groups(&address).await.unwrap().len(), 1);

    let requests = asked.await.unwrap();
    assert_eq!(requests[1].fields.get("groupSeq").map(String::as_str), Some("2"));
    assert_eq!(
        requests[1].fields.get("dataVersion").map(String::as_str),
        Some(r#"{"counter":{"value":2},"timestamp":5}"#)
    );
}

#[tokio::test]
async fn a_pull_tells_where_to_go_on_and_whether_more_may_be_there() {
    const NEXT: &[(&str, &str)] = &[("nextBeginOffset", "8"), ("minOffset", "0"), ("maxOffset", "8")];
    let written =
        Written { topic: "t", properties: &[("UNIQ_KEY", "01")], body: b"x", flags: 0, queue_offset: 7 }
            .bytes();
    let (admin, _) = peer(vec![
        Turn::Answer(0, NEXT, None, written),
        Turn::Answer(19, NEXT, None, Vec::new()),
        Turn::Answer(21, NEXT, None, Vec::new()),
        refusal(17, "no topic"),
        refusal(1, "store is shut down"),
    ])
    .await;
    let address = server(&admin);
    let pull = async || admin.pull(&address, "g", "t", 0, 7, 32).await;

    let found = pull().await.unwrap();
    assert_eq!((found.messages.len(), found.next_offset, found.more), (1, 8, true));
    assert_eq!(found.messages[0].queue_offset, 7);
    let end = pull().await.unwrap();
    assert_eq!((end.messages.len(), end.next_offset, end.more), (0, 8, false));
    let moved = pull().await.unwrap();
    assert_eq!((moved.messages.len(), moved.next_offset, moved.more), (0, 8, true));
    let missing = pull().await.unwrap();
    assert_eq!((missing.messages.len(), missing.next_offset, missing.more), (0, 7, false));
    assert!(pull().await.unwrap_err().is_refusal(1));
}

#[tokio::test]
async fn the_consumers_of_a_group_are_told_with_its_subscriptions() {
    let connected = r#"{"connectionSet":[{"clientAddr":"127.0.0.1:5","clientId":"b","language":"RUST","version":1},
        {"clientAddr":"127.0.0.1:4","clientId":"a","language":"RUST","version":1}],
        "consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionTable":{
        "t":{"codeSet":[3552281],"expressionType":"TAG","subString":"paid","tagsSet":["paid"],"topic":"t"}}}"#;
    let (admin, _) = peer(vec![json(connected), refusal(206, "not online")]).await;
    let address = server(&admin);

    let consumers = admin.consumers(&address, "g").await.unwrap().unwrap();
    assert_eq!(consumers.clients, ["a", "b"]);
    let paid = Subscribed { topic: "t".into(), language: Some("TAG".into()), expression: "paid".into() };
    assert_eq!(consumers.subscriptions, [paid]);
    assert_eq!(admin.consumers(&address, "g").await.unwrap(), None);
}

#[tokio::test]
async fn copies_are_only_those_with_that_id_in_that_topic() {
    let copy =
        |topic, properties| Written { topic, properties, body: b"x", flags: 0, queue_offset: 0 }.bytes();
    let body = [
        copy("t", &[("UNIQ_KEY", "01")]),
        copy("t", &[("UNIQ_KEY", "02"), ("KEYS", "01")]),
        copy("u", &[("UNIQ_KEY", "01")]),
    ]
    .concat();
    let (admin, _) = peer(vec![Turn::Answer(0, &[], None, body), refusal(22, "none")]).await;
    let address = server(&admin);

    assert_eq!(admin.copies(&address, "t", "01").await.unwrap().len(), 1);
    assert_eq!(admin.copies(&address, "t", "01").await.unwrap(), []);
}

#[tokio::test]
async fn the_signature_covers_all_fields_in_the_order_of_their_names_and_the_body() {
    let (names, asked) = peer(vec![json("")]).await;
    let credentials = Credentials { access_key: "key".to_owned(), secret_key: "Jefe".to_owned() };
    let admin = Admin::new(AdminOptions { credentials: Some(credentials), ..names.options().clone() });

    admin.put_group(&server(&admin), &GroupConfig::new("g", false, 3)).await.unwrap();

    let request = &asked.await.unwrap()[0];
    let signature = request.fields.get("Signature").unwrap();
    let unsigned = Command { fields: BTreeMap::new(), ..request.clone() };
    let wanted = unsigned.signed(&admin.options().credentials.clone().unwrap());
    assert_eq!(Some(signature), wanted.fields.get("Signature"));
    assert_eq!(request.fields.get("AccessKey").map(String::as_str), Some("key"));
    assert!(!format!("{admin:?}").contains("Jefe"));

    // The content of RFC 2202's second test, spread over two fields and the body.
    let spread = Command::request(1).with("B", "o ya want ").with_body(&b"for nothing?"[..]);
    let signed =
        spread.signed(&Credentials { access_key: "what d".to_owned(), secret_key: "Jefe".to_owned() });
    assert_eq!(signed.fields.get("Signature").map(String::as_str), Some("7/zfauXrL6LSdBbV8YTfnCWafHk="));
}

#[tokio::test]
async fn a_peer_that_closes_or_speaks_something_else_is_told_apart() {
    let http = b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec();
    let header_too_long = [&12_u32.to_be_bytes()[..], &99_u32.to_be_bytes(), b"{}      "].concat();
    let other_serialization = [&8_u32.to_be_bytes()[..], &[1, 0, 0, 0], b"    "].concat();
    let (admin, _) = peer(vec![
        Turn::Close,
        Turn::Raw(http),
        Turn::Raw(header_too_long),
        Turn::Raw(other_serialization),
        json("no json"),
        Turn::Answer(0, &[], None, Vec::new()),
    ])
    .await;
    let address = server(&admin);

    let closed = admin.brokers().await.unwrap_err();
    assert!(matches!(closed, AdminError::Broken { .. }), "{closed}");
    for _ in 0..4 {
        let other = admin.brokers().await.unwrap_err();
        assert!(matches!(other, AdminError::Malformed { .. }), "{other}");
    }
    let without_field = admin.end_offset(&address, "t", 0).await.unwrap_err();
    assert!(matches!(without_field, AdminError::Malformed { .. }), "{without_field}");
}

#[tokio::test]
async fn a_silent_peer_costs_the_deadline_and_the_next_name_server_is_asked() {
    let (silent, _) = peer(vec![Turn::Silence, Turn::Silence]).await;
    let (answering, _) = peer(vec![json(r#"{"brokerAddrTable":{}}"#)]).await;
    let deadline = Duration::from_millis(100);
    let one = Admin::new(AdminOptions { deadline, ..silent.options().clone() });
    let both = Admin::new(AdminOptions {
        name_servers: vec![server(&silent), server(&answering)],
        deadline,
        ..silent.options().clone()
    });

    let error = one.brokers().await.unwrap_err();
    assert!(matches!(error, AdminError::TimedOut { .. }), "{error}");
    assert_eq!(both.brokers().await.unwrap(), []);
}

#[tokio::test]
async fn requests_of_the_server_are_not_taken_for_the_answer() {
    let request_of_server = Command::request(40).encode();
    let other_answer = Command { opaque: 99, flag: 1, code: 1, ..Command::request(0) }.encode();
    let answer = Command { flag: 1, code: 0, ..Command::request(0) }.with("offset", 5_u64).encode();
    let frames = [&request_of_server[..], &other_answer, &answer].concat();
    let (admin, _) = peer(vec![Turn::Raw(frames)]).await;

    assert_eq!(admin.end_offset(&server(&admin), "t", 0).await.unwrap(), 5);
}

#[test]
fn name_servers_are_addresses_separated_by_semicolons() {
    let options = AdminOptions::new("a:9876; 127.0.0.1:9877,[::1]:9876").unwrap();
    assert_eq!(options.name_servers, ["a:9876", "127.0.0.1:9877", "[::1]:9876"]);
    for wrong in ["", ";", "a", "a:0", "a:x", ":9876", "rocketmq://a:9876", "u:p@a:9876", "a b:1"] {
        assert!(matches!(AdminOptions::new(wrong), Err(AdminError::Address { .. })), "{wrong}");
    }
    assert!(!AdminOptions::new("user:hidden@a:9876").unwrap_err().to_string().contains("hidden"));
}
