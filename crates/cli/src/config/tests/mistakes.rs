//! What is refused, with its place, its key and its fix.

use super::*;

#[test]
fn every_mistake_of_a_pass_is_reported_with_its_place() {
    let shape = "[store]\nurl = 5\n\n[relay]\nbatch_row = 1\nwindow = \"wide\"\n\n[[route]]\nevnt_type = \"*\"\n\n[colour]\n";

    assert_eq!(
        read(shape).unwrap_err().to_string(),
        "the config has 5 problems\n  \
         consign.toml:2: store.url: wrong type: integer `5`, expected a string\n  \
         consign.toml:5: relay.batch_row: unknown key, did you mean \"batch_rows\"?\n  \
         consign.toml:6: relay.window: wrong type: string \"wide\", expected a whole number from 0 up\n  \
         consign.toml:9: route[0].evnt_type: unknown key, did you mean \"event_type\"?\n  \
         consign.toml:11: colour: unknown key: known here are consumer, destination, filter, inbox, outbox, relay, \
         retry, route, setup, store, transaction"
    );

    let values =
        "[store]\nurl = \"points.db\"\n\n[relay]\nbatch_rows = 0\n\n[[route]]\ndestination = \"x\"\n";

    assert_eq!(
        mistakes(values),
        [
            "consign.toml:2: store.url: does not begin with scheme://: write scheme://user@host:port/name",
            "consign.toml:5: relay.batch_rows: 0 is out of range: use 1 to 10000",
            "consign.toml:7: route[0].event_type: is missing: write event_type = \"OrderPaid\", or \"*\"",
            "consign.toml:8: route[0].destination: \"x\" is unknown: add [destination.x]",
        ]
    );
}

#[test]
fn text_that_is_not_toml_is_refused_with_its_line() {
    let error = read("[store]\nurl = \"sqlite:points.db\n").unwrap_err().to_string();

    assert!(error.starts_with("consign.toml:2: not valid TOML: "), "{error}");
}

#[test]
fn a_config_without_a_store_says_what_to_write() {
    assert_eq!(
        mistakes(""),
        [
            "consign.toml:1: store: the section is missing: write [store] with url = \"mysql://user@host:3306/database\" \
          or \"sqlite:file.db\""
        ]
    );
}

/// Design §4: a publish deadline always ends before the lease does; a config in which they do not fit is refused.
#[test]
fn relay_numbers_that_do_not_fit_together_are_refused() {
    for (relay, mistake) in [
        (
            "lease_seconds = 19",
            "relay.lease_seconds: a lease of 19 s cannot hold a publish deadline of 15 s and a margin of 5 s: raise it to 20 or more, or lower publish_deadline_seconds or margin_seconds",
        ),
        ("lease_seconds = 0", "relay.lease_seconds: 0 is out of range: use 1 to 86400"),
        ("margin_seconds = 0", "relay.margin_seconds: 0 is out of range: use 1 to 86400"),
        (
            "poll_min_milliseconds = 2000",
            "relay.poll_min_milliseconds: 2000 is more than poll_max_milliseconds, which is 1000: lower it",
        ),
        (
            "window_bytes = 100000000",
            "relay.window_bytes: 100000000 is more than held_bytes, which is 16777216: lower it, or raise held_bytes",
        ),
        (
            "name = \"a b\"",
            "relay.name: \"a b\" is not a usable name: use 1 to 64 letters, digits, -, _ and . without a double underscore",
        ),
    ] {
        let found = mistakes(&format!("{LEAST}[relay]\n{relay}\n"));

        assert!(found.contains(&format!("consign.toml:4: {mistake}")), "{relay}: {found:#?}");
    }
    assert!(read(&format!("{LEAST}[relay]\nlease_seconds = 20\n")).is_ok());
    let retry = mistakes(&format!("{LEAST}[retry]\nbase_seconds = 400\nunroutable = \"deed\"\n"));
    assert_eq!(retry.len(), 2);
    assert!(
        retry[1].ends_with("retry.unroutable: \"deed\" is not known: did you mean \"dead\"?"),
        "{retry:?}"
    );
}

/// B87, iamsauravsharma/sqlx_migrator#17: configured names go into SQL, and cannot be bound.
#[test]
fn names_that_cannot_go_into_sql_are_refused() {
    let long = "a".repeat(64);
    let too_long = "a".repeat(65);
    for (table, accepted) in [
        ("outbox", true),
        ("Outbox", true),
        ("shop.outbox", true),
        ("consign_outbox_body", true),
        ("_x$1", true),
        (long.as_str(), true),
        (too_long.as_str(), false),
        ("", false),
        ("a.b.c", false),
        (".a", false),
        ("1a", false),
        ("größe", false),
        ("outbox`; DROP TABLE x; -- ", false),
        ("a\\\"b", false),
        ("a b", false),
    ] {
        let found = mistakes(&format!("{LEAST}[inbox]\ntable = \"{table}\"\n"));

        assert_eq!(found.is_empty(), accepted, "{table:?}: {found:?}");
        assert!(accepted || found[0].starts_with("consign.toml:4: inbox.table: "), "{found:?}");
    }
}

#[test]
fn renamed_columns_are_the_contract_s_and_do_not_collide() {
    for (columns, mistake) in [
        ("evnt_id = \"id\"", "outbox[0].columns.evnt_id: \"evnt_id\" is unknown: did you mean \"event_id\"?"),
        (
            "event_id = \"a.b\"",
            "outbox[0].columns.event_id: \"a.b\" is not a usable name: use letters, digits, _ and $, not starting with a digit, at most 64 characters",
        ),
        (
            "event_id = \"payload\"",
            "outbox[0].columns.event_id: \"payload\" is the name of payload too: every column needs its own",
        ),
    ] {
        let found = mistakes(&format!("{LEAST}[[outbox]]\ncolumns = {{ {columns} }}\n"));

        assert_eq!(found, [format!("consign.toml:4: {mistake}")]);
    }
    let swapped =
        format!("{LEAST}[[outbox]]\ncolumns = {{ event_id = \"payload\", payload = \"event_id\" }}\n");
    assert!(read(&swapped).is_ok());
}

#[test]
fn stores_that_cannot_work_are_refused() {
    for (store, mistake) in [
        ("url = \"sqlite::memory:\"", "store.url: is not a file: write \"sqlite:file.db\""),
        ("url = \"mysql://db\"", "store.url: names no database: write mysql://user@host:3306/database"),
        ("url = \"oracle://db/x\"", "store.url: scheme \"oracle\" is not known: use mysql or mariadb"),
        (
            "url = \"mysql://db/x\"\ntime_zone = \"+25:00\"",
            "store.time_zone: \"+25:00\" is not a time zone: write an offset such as \"+09:00\", or a name such as \"Asia/Tokyo\"",
        ),
        (
            "url = \"mysql://db/x\"\ntime_zone = \"'; DROP\"",
            "store.time_zone: \"'; DROP\" is not a time zone: write an offset such as \"+09:00\", or a name such as \"Asia/Tokyo\"",
        ),
        (
            "url = \"mysql://db/x\"\ntls_ca_file = \"nowhere.pem\"",
            "store.tls_ca_file: /etc/consign/nowhere.pem is not a readable file: relative paths start at the config's folder",
        ),
    ] {
        let found = mistakes(&format!("[store]\n{store}\n"));

        let (line, key) = (store.lines().count() + 1, mistake);
        assert_eq!(found, [format!("consign.toml:{line}: {key}")]);
    }
    for zone in ["+09:00", "-13:59", "+14:00", "Asia/Tokyo", "SYSTEM", "Etc/GMT+5"] {
        assert!(
            read(&format!("[store]\nurl = \"mysql://db/x\"\ntime_zone = \"{zone}\"\n")).is_ok(),
            "{zone}"
        );
    }
}

#[test]
fn destinations_that_cannot_work_are_refused() {
    for (from, to, mistake) in [
        (
            "type = \"rabbitmq\"",
            "type = \"rabitmq\"",
            "6: destination.points.type: \"rabitmq\" is not known: did you mean \"rabbitmq\"?",
        ),
        (
            "type = \"rabbitmq\"\n",
            "",
            "5: destination.points.type: is missing: write type = \"rabbitmq\", \"rocketmq\" or \"embedded\"",
        ),
        (
            "url = \"amqp:",
            "path = \"q.db\"\nurl = \"amqp:",
            "7: destination.points.path: does not apply to type rabbitmq: remove it",
        ),
        (
            "url = \"amqp:",
            "tls_ca_file = \"/dev/null\"\nurl = \"amqp:",
            "7: destination.points.tls_ca_file: /dev/null is not a readable file: relative paths start at the config's folder",
        ),
        (
            "exchange = { name = \"points\" }\n",
            "",
            "11: destination.points.queue[0].bindings: the destination has no exchange to bind to: add exchange, or remove the bindings and use the queue's name as the route key",
        ),
        (
            "{ name = \"points\" }",
            "{ name = \"points\", type = \"topik\" }",
            "8: destination.points.exchange.type: \"topik\" is not known: did you mean \"topic\"?",
        ),
        (
            "bindings = [\"OrderPaid\"]",
            "durable = false",
            "12: destination.points.queue[0].durable: a quorum queue is always durable: remove durable = false",
        ),
        (
            "bindings = [\"OrderPaid\"]",
            "type = \"classic\"\ndelivery_limit = 3",
            "13: destination.points.queue[0].delivery_limit: does not apply to a classic queue: remove it or use another type",
        ),
        (
            "bindings = [\"OrderPaid\"]",
            "delivery_limit = -2",
            "12: destination.points.queue[0].delivery_limit: -2 is out of range: use 0 or more, or -1 for no limit",
        ),
        (
            "bindings = [\"OrderPaid\"]",
            "dead_letter_strategy = \"at-least-once\"",
            "12: destination.points.queue[0].dead_letter_strategy: needs dead_letter_exchange too: add it",
        ),
        (
            "bindings = [\"OrderPaid\"]",
            "dead_letter_key = \"x\"",
            "12: destination.points.queue[0].dead_letter_key: needs dead_letter_exchange too: add it",
        ),
        (
            "bindings = [\"OrderPaid\"]",
            "type = \"stream\"",
            "21: consumer[0].queue: \"points-award\" is a stream, which forgets what was acknowledged: consume a quorum queue",
        ),
    ] {
        let found = mistakes(&changed(from, to));

        assert!(found.contains(&format!("consign.toml:{mistake}")), "{mistake}\n{found:#?}");
    }
    let embedded = format!(
        "{LEAST}[destination.x]\ntype = \"embedded\"\nurl = \"amqp://mq\"\nqueue = [{{ name = \"a\", bindings = [\"*x\"] }}, {{ name = \"a\" }}]\n"
    );
    assert_eq!(mistakes(&embedded).len(), 4, "{:#?}", mistakes(&embedded));
}

#[test]
fn routes_that_lead_nowhere_are_refused() {
    let second = "\n[[route]]\nevent_type = \"OrderPaid\"\ndestination = \"points\"\n\n[[consumer]]\nname";
    for (from, to, mistake) in [
        (
            "destination = \"points\"",
            "destination = \"point\"",
            "16: route[0].destination: \"point\" is unknown: did you mean \"points\"?",
        ),
        (
            "event_type = \"*\"",
            "event_type = \"Order*Paid\"",
            "15: route[0].event_type: \"Order*Paid\" has a * that is not at its end: write an exact type or prefix*",
        ),
        (
            "event_type = \"*\"",
            "event_type = \"*\"\nkey = \"{event}\"",
            "16: route[0].key: \"{event}\" uses unknown placeholder \"event\": use event_type, aggregate_type, aggregate_id or business_key",
        ),
        (
            "\n[[consumer]]\nname",
            second,
            "19: route[1].event_type: \"OrderPaid\" is never reached, because \"*\" above takes it first: move it up",
        ),
    ] {
        assert_eq!(mistakes(&changed(from, to)), [format!("consign.toml:{mistake}")]);
    }
}

#[test]
fn consumers_that_cannot_work_are_refused() {
    let statement = "[[consumer.statement]]\nsql = \"UPDATE points_account SET points = points + :amount WHERE user_id = :user_id\"\n";
    let compare = "compare = [\"user_id\", \"amount\"]";
    for (from, to, mistake) in [
        (
            "source = \"points\"",
            "source = \"point\"",
            "20: consumer[0].source: \"point\" is unknown: did you mean \"points\"?",
        ),
        (
            "queue = \"points-award\"",
            "queue = \"points-awards\"",
            "21: consumer[0].queue: \"points-awards\" is unknown: did you mean \"points-award\"?",
        ),
        (
            "{order_id}",
            "{order}",
            "22: consumer[0].key: \"order:{order}:paid\" uses unknown name \"order\": bind it with bind.order = { pointer = \"/…\", type = \"…\" }",
        ),
        (
            "{order_id}",
            "1",
            "22: consumer[0].key: \"order:1:paid\" has no placeholder, so every delivery would be the same operation: add a {name}",
        ),
        (
            compare,
            "compare = [\"userid\"]",
            "23: consumer[0].compare: \"userid\" is not bound: did you mean \"user_id\"?",
        ),
        (
            compare,
            "compare = { event_id = \"user_id\" }",
            "23: consumer[0].compare: \"event_id\" is a column of consumed_operation that consign writes itself: compare another one",
        ),
        (
            compare,
            "compare = [\"amount\"]\nfingerprint = [\"amount\"]",
            "24: consumer[0].fingerprint: stands beside compare: keep one of them",
        ),
        (
            compare,
            "fingerprint = []",
            "23: consumer[0].fingerprint: the fingerprint covers no field: list the bindings that must be equal",
        ),
        (
            compare,
            "",
            "18: consumer[0].compare: is missing: list the fields that must be equal for a repeat, compare = [] when the key says it all, or use fingerprint",
        ),
        (
            "type = \"integer\" }",
            "type = \"intger\" }",
            "24: consumer[0].bind.order_id.type: \"intger\" is not known: did you mean \"integer\"?",
        ),
        (
            "pointer = \"/orderId\", ",
            "",
            "24: consumer[0].bind.order_id: has no source: add pointer = \"/field\", or header = \"name\"",
        ),
        (
            "\"/orderId\"",
            "\"orderId\"",
            "24: consumer[0].bind.order_id: \"orderId\" is not a JSON pointer: write /field/inner, with ~1 for a slash and ~0 for a tilde",
        ),
        (
            "+ :amount",
            "+ :amuont",
            "29: consumer[0].statement[0].sql: parameter :amuont is unknown: did you mean :amount?",
        ),
        (
            ":user_id\"\n",
            ":user_id\"\nexpect_rows = \"some\"\n",
            "30: consumer[0].statement[0].expect_rows: \"some\" is not a row count: write a number, \">=n\" or \"any\"",
        ),
        (
            statement,
            "",
            "18: consumer[0].statements: the consumer would do nothing: add [[consumer.statement]], or write statements = \"none\" when the marker alone is the effect",
        ),
    ] {
        assert_eq!(mistakes(&changed(from, to)), [format!("consign.toml:{mistake}")]);
    }
}

#[test]
fn numbers_and_words_of_a_consumer_that_do_not_fit_together_are_refused() {
    let compare = "compare = [\"user_id\", \"amount\"]";
    for (to, mistake) in [
        (
            "workers = 300\ncompare = []",
            "23: consumer[0].workers: 300 workers share a prefetch of 200: raise prefetch, or some never work",
        ),
        (
            "batch = 201\ncompare = []",
            "23: consumer[0].batch: a batch of 201 never fills with a prefetch of 200: lower it, or raise prefetch",
        ),
        ("batch = 1001\ncompare = []", "23: consumer[0].batch: 1001 is out of range: use 1 to 1000"),
        (
            "batch_linger_milliseconds = 1001\ncompare = []",
            "23: consumer[0].batch_linger_milliseconds: 1001 is out of range: use 0 to 1000",
        ),
        (
            "on_conflict = \"dead_leter\"\ncompare = []",
            "23: consumer[0].on_conflict: \"dead_leter\" is not known: did you mean \"dead_letter\"?",
        ),
        (
            "dead_letter = { destination = \"x\", key = \"y\" }\ncompare = []",
            "23: consumer[0].dead_letter.destination: \"x\" is unknown: add [destination.x]",
        ),
    ] {
        assert_eq!(mistakes(&changed(compare, to)), [format!("consign.toml:{mistake}")]);
    }
}

#[test]
fn schemas_that_cannot_be_used_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let compare = "compare = [\"user_id\", \"amount\"]";
    for (schema, problem) in [
        ("{ \"type\": \"object\" }", None),
        ("{", Some("is not JSON: ")),
        ("{ \"type\": \"objekt\" }", Some("is not a usable JSON Schema: ")),
    ] {
        let file = folder.path().join("paid.schema.json");
        std::fs::write(&file, schema).unwrap();
        let text = changed(compare, &format!("schema = \"{}\"\n{compare}", file.display()));

        let found = mistakes(&text);

        let prefix = format!("consign.toml:23: consumer[0].schema: {}", file.display());
        match problem {
            None => assert!(read(&text).unwrap().consumers[0].schema.is_some(), "{found:?}"),
            Some(problem) => assert!(found[0].starts_with(&format!("{prefix} {problem}")), "{found:?}"),
        }
    }
    let missing = mistakes(&changed(compare, &format!("schema = \"nowhere.json\"\n{compare}")));
    assert_eq!(
        missing,
        [
            "consign.toml:23: consumer[0].schema: /etc/consign/nowhere.json is not a readable file: relative paths start at the config's folder"
        ]
    );
}

#[test]
fn names_used_twice_are_refused() {
    let consumer = &WHOLE[WHOLE.find("[[consumer]]").unwrap()..];
    let outboxes =
        format!("{LEAST}[[outbox]]\n[[outbox]]\ntable = \"other\"\n[[outbox]]\nname = \"third\"\n");

    let consumers = mistakes(&format!("{WHOLE}{consumer}"));

    assert_eq!(
        consumers,
        ["consign.toml:31: consumer[1].name: \"points-award\" is used twice: give every entry its own"]
    );
    assert_eq!(mistakes(&outboxes).len(), 2, "{:#?}", mistakes(&outboxes));
}

#[test]
fn a_damaged_config_is_read_or_refused_with_a_reason_and_never_ends_the_process() {
    let mut refused = 0;
    for start in 0..WHOLE.len() {
        for end in [start + 1, start + 7, start + 60].map(|end| end.min(WHOLE.len())) {
            let damaged = format!("{}{}", &WHOLE[..start], &WHOLE[end..]);

            if let Err(error) = read(&damaged) {
                assert!(
                    !error.problems.is_empty()
                        && error.problems.iter().all(|problem| !problem.text.is_empty())
                );
                refused += 1;
            }
        }
    }
    assert!(refused > WHOLE.len(), "only {refused} damaged configs were refused");
}
