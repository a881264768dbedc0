//! Everything in the core that reads what others wrote.

use std::collections::BTreeMap;
use std::fmt::Write;

use consign_core::declared::{Binding, BindingSource, Bindings, ExpectRows, KeyTemplate, Statement};
use consign_core::delivery::Message;
use consign_core::event::{Aggregate, Event, EventId};
use consign_core::json::Json;
use consign_core::route::{DestinationName, RouteTable, Rule, Template};
use consign_core::value::{Timestamp, Value, ValueType};
use seeded_fuzz::{Source, run};

const TYPES: [ValueType; 6] = [
    ValueType::Integer,
    ValueType::Decimal,
    ValueType::String,
    ValueType::Boolean,
    ValueType::Json,
    ValueType::Timestamp,
];

/// A JSON text, spelt in one of many ways.
fn json(source: &mut Source, depth: usize) -> String {
    let space = *source.pick(&["", "", "", " ", "\n\t"]);
    let text = match source.below(if depth > 4 { 6 } else { 8 }) {
        0 => (*source.pick(&["null", "true", "false"])).to_owned(),
        1 => source.number().to_string(),
        2 => format!(
            "{}{}.{}{}",
            source.pick(&["", "-"]),
            source.below(1000),
            source.pick(&["0", "5", "500", "1230000", "0000000000000000000001"]),
            source.pick(&["", "e0", "E+2", "e-3", "e17", "e-999"])
        ),
        3 => {
            (*source.pick(&["0", "-0", "0.0", "1e400", "-1E-400", "100000000000000000000000000"])).to_owned()
        }
        4 | 5 => string(source),
        6 => {
            let items: Vec<_> = (0..source.below(4)).map(|_| json(source, depth + 1)).collect();
            format!("[{}]", items.join(","))
        }
        _ => {
            let entries: Vec<_> = (0..source.below(4))
                .map(|_| format!("{}{space}:{}", string(source), json(source, depth + 1)))
                .collect();
            format!("{{{}}}", entries.join(","))
        }
    };
    format!("{space}{text}{space}")
}

/// A JSON string, escaped as it pleases.
fn string(source: &mut Source) -> String {
    let words = ["a", "b", "id", "~", "/", "~1", "~0", "", "orderId"];
    let mut text = String::from("\"");
    for character in source.text(6, &words).chars() {
        match character {
            '"' | '\\' => {
                text.push('\\');
                text.push(character);
            }
            character if character < ' ' || source.one_in(10) => {
                let mut units = [0; 2];
                for unit in character.encode_utf16(&mut units) {
                    write!(text, "\\u{unit:04x}").expect("text takes everything");
                }
            }
            character => text.push(character),
        }
    }
    text + "\""
}

/// Canonical text is a fixed point, and stands for the same value.
#[test]
fn canonical_json() {
    run("canonical_json", |source| {
        let text = json(source, 0);
        let value = Json::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        let canonical = value.canonical();
        let again = Json::parse(canonical.as_bytes()).expect("canonical text is JSON");
        assert_eq!(again, value, "{text:?} and {canonical:?} are one value");
        assert_eq!(again.canonical(), canonical);
    });
}

/// Broken text is refused, or was not broken: whatever is read can be written and read again.
#[test]
fn broken_json() {
    run("broken_json", |source| {
        let text = json(source, 0);
        let bytes = if source.one_in(4) { source.bytes(200) } else { source.mutated(text.as_bytes()) };
        match Json::parse(&bytes) {
            Ok(value) => {
                let again = Json::parse(value.canonical().as_bytes()).expect("canonical text is JSON");
                assert_eq!(again, value);
            }
            Err(error) => assert!(error.at <= bytes.len(), "{error}"),
        }
    });
}

/// A pointer that names a place finds what is there; no pointer finds anything twice removed.
#[test]
fn payload_selection() {
    run("payload_selection", |source| {
        let value = Json::parse(json(source, 0).as_bytes()).expect("generated text is JSON");
        let (mut place, mut pointer) = (&value, String::new());
        loop {
            match place {
                Json::Object(entries) if !entries.is_empty() && !source.one_in(4) => {
                    let (key, inner) = source.pick(entries);
                    pointer.push('/');
                    pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
                    place = inner;
                }
                Json::Array(items) if !items.is_empty() && !source.one_in(4) => {
                    let index = source.index(items.len());
                    for wrong in [format!("{pointer}/+{index}"), format!("{pointer}/0{index}")] {
                        assert_eq!(value.pointer(&wrong), None, "{wrong:?} is no index of RFC 6901");
                    }
                    write!(pointer, "/{index}").expect("text takes everything");
                    place = &items[index];
                }
                _ => break,
            }
        }
        assert_eq!(value.pointer(&pointer), Some(place), "{pointer:?}");
        // Whatever else it is, it must come to an end.
        let _ = value.pointer(&source.text(8, &["/", "~", "~0", "~1", "a", "0", "id"]));
    });
}

/// A value that was read is the same as the column that keeps it, and as itself.
#[test]
fn bound_values() {
    run("bound_values", |source| {
        let text = if source.one_in(3) { format!("{:?}", timestamp(source)) } else { json(source, 0) };
        let Ok(value) = Json::parse(text.as_bytes()) else { return };
        for wanted in TYPES {
            let Ok(read) = Value::read(&value, wanted) else { continue };
            let stored = match &read {
                Value::Null => None,
                Value::Boolean(truth) => Some(if *truth { "1" } else { "0" }.to_owned()),
                other => Some(other.text()),
            };
            assert!(read.same_as_stored(stored.as_deref()), "{read:?} is not what {stored:?} stands for");
        }
    });
}

fn timestamp(source: &mut Source) -> String {
    let text = format!(
        "{:04}-{:02}-{:02}{}{:02}:{:02}:{:02}{}{}",
        source.below(10_000),
        source.below(14),
        source.below(33),
        source.pick(&["T", "t", " "]),
        source.below(25),
        source.below(61),
        source.below(62),
        source.pick(&["", ".1", ".123456", ".1234560", ".1234567", "."]),
        source.pick(&["Z", "z", "+00:00", "-00:00", "+23:59", "-14:00", "+24:00", "", "+0100"]),
    );
    String::from_utf8_lossy(&source.mutated(text.as_bytes())).into_owned()
}

/// A time that was read is shown so that it is read again as the same instant.
#[test]
fn timestamps() {
    run("timestamps", |source| {
        let text = timestamp(source);
        if let Ok(instant) = Timestamp::parse(&text) {
            let shown = instant.to_string();
            assert_eq!(Timestamp::parse_stored(&shown), Some(instant), "{text:?} is shown as {shown:?}");
            assert_eq!(Timestamp::parse(&format!("{shown}Z")), Ok(instant));
        }
        let _ = Timestamp::parse_stored(&text);
    });
}

/// Two operations never share a key: what a key is made of can be told from the key.
#[test]
fn key_templates() {
    run("key_templates", |source| {
        let text = source.text(8, &["{a}", "{b}", "{c}", ":", "-", "order", "::"]);
        let Ok(template) = KeyTemplate::parse(&text) else { return };
        assert_eq!(template.as_str(), text);
        let fields = |source: &mut Source| -> BTreeMap<String, Value> {
            let value = |source: &mut Source| match source.below(3) {
                0 => Value::Integer(source.number().into()),
                _ => Value::Text(source.text(3, &[":", "-", "1", "order", "x"])),
            };
            ["a", "b", "c"].into_iter().map(|name| (name.to_owned(), value(source))).collect()
        };
        let (one, other) = (fields(source), fields(source));
        let (Ok(first), Ok(second)) = (template.render(&one, 1000), template.render(&other, 1000)) else {
            return;
        };
        if first == second {
            for name in ["a", "b", "c"].into_iter().filter(|name| text.contains(&format!("{{{name}}}"))) {
                assert_eq!(one[name].text(), other[name].text(), "{text:?} gives {first:?} for both");
            }
        }
    });
}

/// A route key is the template with every placeholder replaced, once.
#[test]
fn route_templates() {
    const NAMES: [&str; 4] = ["event_type", "aggregate_type", "aggregate_id", "business_key"];
    run("route_templates", |source| {
        let words = ["{event_type}", "{aggregate_id}", "{aggregate_type}", "{business_key}", ".", "a"];
        let text = source.text(8, &words);
        let Ok(template) = Template::parse(&text) else { return };
        let values: Vec<String> = NAMES.iter().map(|_| source.text(3, &words)).collect();
        let event = Event {
            id: EventId::stored("e"),
            aggregate: Aggregate {
                kind: Some(values[1].clone()),
                id: Some(values[2].clone()),
                version: None,
            },
            event_type: values[0].clone(),
            business_key: Some(values[3].clone()),
            payload: None,
            headers: Vec::new(),
            destination: None,
            route_key: None,
            created_at_micros: None,
        };
        let name = DestinationName::new("main");
        let rule = Rule { event_type: "*".into(), destination: name.clone(), key: template, retry: None };
        let route =
            RouteTable::new(vec![rule], vec![name]).resolve(&event).expect("the rule takes everything");
        let mut wanted = String::new();
        let mut rest = text.as_str();
        while let Some((literal, tail)) = rest.split_once('{') {
            let (name, after) = tail.split_once('}').expect("the template was accepted");
            let at = NAMES.iter().position(|known| *known == name).expect("the template was accepted");
            wanted.push_str(literal);
            wanted.push_str(&values[at]);
            rest = after;
        }
        wanted.push_str(rest);
        assert_eq!(route.key, wanted);
    });
}

/// Outside of quotes and comments a statement has as many question marks as parameters.
#[test]
fn statements() {
    const WORDS: &[&str] = &[
        "INSERT INTO t (a, b) VALUES (:a, :b)",
        "UPDATE t SET n = n + :a WHERE b = :b",
        ":a",
        ":b",
        ":unknown",
        "::",
        "'",
        "''",
        "\"",
        "`",
        "--",
        "-- ",
        "/*",
        "*/",
        "#",
        ";",
        "?",
        "\\",
        "\n",
        " ",
        "$$",
        "(",
        ")",
        ",",
        "=",
        "x'",
        "DELETE FROM t",
        "WITH",
        "a",
        "\\'",
    ];
    run("statements", |source| {
        let text = source.text(10, WORDS);
        let Ok(statement) = Statement::parse(&text, ["a", "b"], ExpectRows::Any) else { return };
        assert!(statement.parameters().iter().all(|name| ["a", "b"].contains(&name.as_str())));
        let marks = statement.sql().matches('?').count();
        assert!(marks >= statement.parameters().len(), "{text:?} became {:?}", statement.sql());
        // Reading its own output changes nothing more: no parameter was left in it.
        if let Ok(again) = Statement::parse(statement.sql(), ["a", "b"], ExpectRows::Any) {
            assert_eq!(again.sql(), statement.sql());
            assert_eq!(again.parameters(), [""; 0], "{text:?} became {:?}", statement.sql());
        }
    });
}

/// A payload gives fields of the declared types or a refusal, which never quotes the payload.
#[test]
fn bindings() {
    const SECRET: &str = "s3cr3t-canary";
    run("bindings", |source| {
        let mut bindings = BTreeMap::new();
        for name in ["a", "b"] {
            let pointer = source.text(3, &["/a", "/id", "/0", "/orderId", "~1"]);
            let binding = Binding {
                source: BindingSource::Pointer(pointer),
                value_type: *source.pick(&TYPES),
                required: source.one_in(2),
            };
            bindings.insert(name.to_owned(), binding);
        }
        let Ok(bindings) = Bindings::new(bindings) else { return };
        let text = json(source, 0).replace("orderId", SECRET);
        let body = if source.one_in(3) { source.mutated(text.as_bytes()) } else { text.into_bytes() };
        let message = Message { body: body.into(), ..Message::default() };
        match bindings.read(&message) {
            Ok(fields) => assert!(["a", "b"].iter().all(|name| fields.contains_key(*name))),
            Err(refusal) => assert!(!refusal.to_string().contains(SECRET), "{refusal}"),
        }
    });
}
