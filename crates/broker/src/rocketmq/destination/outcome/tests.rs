use consign_rocketmq::Address;

use super::*;

/// What an outcome is, without its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Confirmed,
    Unroutable,
    Rejected,
    Refused,
    Unknown,
}

fn class(outcome: &Outcome) -> Class {
    match outcome {
        Outcome::Confirmed(_) => Class::Confirmed,
        Outcome::Unroutable { .. } => Class::Unroutable,
        Outcome::Rejected { .. } => Class::Rejected,
        Outcome::Refused { .. } => Class::Refused,
        Outcome::Unknown(_) => Class::Unknown,
    }
}

fn strict(result: Result<Receipt, CallError>) -> Outcome {
    outcome(result, &[])
}

fn answer(code: i32, message: &str) -> Outcome {
    strict(Err(CallError::Answered { code: Code::new(code), message: message.to_owned() }))
}

#[test]
fn only_an_ok_is_a_proof_and_it_names_proxy_and_offset() {
    let endpoint = Address { host: "10.0.0.1".to_owned(), port: 8081 };
    let receipt = Receipt { message_id: "e-1".to_owned(), offset: 7, recall_handle: None, endpoint };

    let outcome = strict(Ok(receipt));

    let proof = Proof::Stored { endpoint: "10.0.0.1:8081".to_owned(), offset: 7 };
    assert_eq!(outcome, Outcome::Confirmed(proof));
}

/// Every code of the protocol, so that a new one is judged on purpose.
#[test]
fn every_code_has_its_class() {
    use Class::{Refused, Rejected, Unknown, Unroutable};
    let table = [
        (0, Unknown),
        // An error that says OK contradicts itself.
        (20000, Unknown),
        (30000, Unknown),
        (40000, Unknown),
        (40001, Refused),
        (40002, Unroutable),
        (40003, Unknown),
        (40004, Rejected),
        (40005, Rejected),
        (40006, Rejected),
        (40007, Rejected),
        (40008, Unknown),
        (40009, Rejected),
        (40010, Unknown),
        (40011, Unknown),
        (40012, Rejected),
        (40013, Unknown),
        (40014, Rejected),
        (40015, Refused),
        (40016, Rejected),
        (40017, Refused),
        (40018, Unknown),
        (40019, Unknown),
        (40020, Unknown),
        (40021, Refused),
        (40100, Refused),
        (40200, Refused),
        (40300, Refused),
        (40400, Unknown),
        (40401, Unknown),
        (40402, Unroutable),
        (40403, Unknown),
        (40404, Unknown),
        (40800, Unknown),
        (41300, Rejected),
        (41301, Rejected),
        (41302, Rejected),
        (42800, Refused),
        (42900, Refused),
        (42901, Unknown),
        (42902, Unknown),
        (43100, Unknown),
        (43101, Rejected),
        (50000, Unknown),
        (50001, Unknown),
        (50002, Unknown),
        (50100, Refused),
        (50400, Unknown),
        (50401, Unknown),
        (50402, Unknown),
        (50500, Refused),
        (50501, Refused),
        (50502, Unknown),
        (60000, Unknown),
        (49999, Unknown),
    ];

    for (code, expected) in table {
        let outcome = answer(code, "");
        assert_eq!(class(&outcome), expected, "{code}: {outcome:?}");
    }
    let known = (0..70_000).filter(|code| Code::new(*code).name().is_some());
    let missing: Vec<i32> = known.filter(|code| !table.iter().any(|(listed, _)| listed == code)).collect();
    assert!(missing.is_empty(), "codes without a class: {missing:?}");
}

/// apache/rocketmq `SendMessageProcessor.handlePutMessageResult` and the remoting client's exceptions.
#[test]
fn the_words_behind_an_internal_error_tell_whose_fault_it_was() {
    use Class::{Refused, Rejected, Unknown, Unroutable};
    let table = [
        ("the message is illegal, maybe msg body or properties length not matched.", Rejected),
        ("timer message illegal, the delay time should not be bigger than the max delay 1ms", Rejected),
        ("Required message key is missing", Rejected),
        ("message body size exceeded. RuntimeException. org.apache", Rejected),
        ("service not available now. It may be caused by one of the following reasons:", Refused),
        ("[PC_SYNCHRONIZED]broker busy, start flow control for a while", Refused),
        ("[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control", Refused),
        ("timer message is under flow control, max num limit is 5", Refused),
        ("in-sync replicas not enough", Refused),
        ("create mapped file failed, server is busy or broken.", Refused),
        ("the broker[127.0.0.1] sending message is forbidden", Refused),
        ("the topic[orders] sending message is forbidden", Refused),
        ("no master available along with 127.0.0.1", Refused),
        ("broker unable to service, until 2026-12-02", Refused),
        ("accurate timer message is not enabled, timerWheelEnable is false", Refused),
        ("connect to 127.0.0.1:10911 failed. RemotingConnectException. org.apache", Refused),
        ("invokeAsync call timeout. RemotingTooMuchRequestException. org.apache", Refused),
        ("topic[orders] not exist, apply first please!", Unroutable),
        // A request that was under way on a channel that closed ends with the same exception as one that was not sent.
        ("send request to <10.0.0.1:10911> failed. RemotingSendRequestException. org.apache", Unknown),
        ("UNKNOWN_ERROR", Unknown),
        ("store putMessage return null", Unknown),
        ("", Unknown),
    ];

    for (words, expected) in table {
        let outcome = answer(50001, words);
        assert_eq!(class(&outcome), expected, "{words:?}: {outcome:?}");
    }
}

/// apache/rocketmq#9595: the type of a topic that the proxy cannot read is UNSPECIFIED.
#[test]
fn a_type_that_does_not_fit_is_the_messages_fault_unless_the_topics_type_is_not_known() {
    let expected = |kind| {
        let text = "TopicMessageType validate failed, the expected type is";
        format!("{text} {kind}, but actual type is NORMAL")
    };

    assert_eq!(class(&answer(40014, &expected("UNSPECIFIED"))), Class::Unroutable);
    assert_eq!(class(&answer(40014, &expected("FIFO"))), Class::Rejected);
}

#[test]
fn a_stored_but_unsafe_message_is_unknown_unless_its_status_is_accepted_by_name() {
    for status in StoredStatus::ALL {
        let result = || Err(CallError::Answered { code: status.code(), message: "stored".to_owned() });
        let others: Vec<StoredStatus> =
            StoredStatus::ALL.into_iter().filter(|other| *other != status).collect();

        let not_accepted = outcome(result(), &others);
        let accepted = outcome(result(), &[status]);

        let Outcome::Unknown(Doubt::Inconclusive(why)) = not_accepted else { panic!("{not_accepted:?}") };
        assert!(why.contains(status.name()), "{why}");
        assert_eq!(accepted, Outcome::Confirmed(Proof::AcceptedAs { status: status.name() }));
    }
}

#[test]
fn what_was_not_sent_is_refused_and_what_got_no_answer_is_unknown() {
    let not_sent = CallError::NotSent { reason: "no connection".to_owned() };
    let unknown = CallError::Unknown { reason: "reset".to_owned() };

    assert_eq!(class(&strict(Err(not_sent))), Class::Refused);
    assert_eq!(strict(Err(unknown)), Outcome::Unknown(Doubt::ConnectionLost("reset".to_owned())));
}

/// The row's `last_error` is what an operator sees.
#[test]
fn an_outcome_keeps_the_code_and_the_words() {
    let unroutable = answer(40402, "no route for topic orders");
    let rejected = answer(40014, "expected FIFO");

    let text = "TOPIC_NOT_FOUND: no route for topic orders".to_owned();
    assert_eq!(unroutable, Outcome::Unroutable { code: 40402, text });
    let reason = "40014 MESSAGE_PROPERTY_CONFLICT_WITH_TYPE: expected FIFO".to_owned();
    assert_eq!(rejected, Outcome::Rejected { reason });
}
