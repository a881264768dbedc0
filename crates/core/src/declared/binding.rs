//! Bindings: names for the payload fields and headers that a declared consumer uses.

use std::collections::BTreeMap;
use std::fmt;

use crate::declared::spelling::nearest_name;
use crate::delivery::Message;
use crate::json::{InvalidJson, Json};
use crate::value::{Value, ValueType, WrongType};

/// Names every consumer has without binding them: the event's id and its type.
pub const BUILT_IN_NAMES: [&str; 2] = ["event_id", "event_type"];

/// The values of one message by binding name.
pub type Fields = BTreeMap<String, Value>;

/// Where a bound value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindingSource {
    /// A JSON pointer (RFC 6901) into the payload; the empty pointer is the whole payload.
    Pointer(String),
    /// A message header. Copies of one event may differ in their headers, so a header is never identity.
    Header(String),
}

/// One bound value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Where it comes from.
    pub source: BindingSource,
    /// The type it must have; nothing is converted.
    pub value_type: ValueType,
    /// True when a message without it is refused. An optional value that is absent is NULL.
    pub required: bool,
}

/// The bindings of one consumer, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings(BTreeMap<String, Binding>);

/// Why a binding cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBinding {
    /// The name cannot stand behind a colon in SQL.
    #[error("{name:?} is not a binding name: use letters, digits and _, not starting with a digit")]
    Name {
        /// The name.
        name: String,
    },
    /// The name belongs to every consumer already.
    #[error("{name:?} is built in: every consumer has it, choose another name for the binding")]
    BuiltIn {
        /// The name.
        name: String,
    },
    /// The pointer is not one.
    #[error("{pointer:?} is not a JSON pointer: write /field/inner, with ~1 for a slash and ~0 for a tilde")]
    Pointer {
        /// The pointer.
        pointer: String,
    },
    /// The header name is empty.
    #[error("the header name is empty: name the header to read")]
    Header,
}

/// Why a message does not give a consumer the values it needs. Payload content is never part of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldRefusal {
    /// The payload is not JSON, and a binding reads from it.
    #[error("the payload is {0}")]
    NotJson(#[from] InvalidJson),
    /// A required value is absent or null.
    #[error("{name} is missing: {source_text} is absent or null")]
    Missing {
        /// The binding.
        name: String,
        /// Its source, readable.
        source_text: String,
    },
    /// A value has another type than configured.
    #[error("{name} has the wrong type: {source_text} {cause}")]
    WrongType {
        /// The binding.
        name: String,
        /// Its source, readable.
        source_text: String,
        /// What was found and wanted.
        cause: WrongType,
    },
    /// A header that should hold a number, a truth value or JSON holds something else.
    #[error("{name} has the wrong type: {source_text} is text that does not read as {wanted}")]
    HeaderText {
        /// The binding.
        name: String,
        /// Its source, readable.
        source_text: String,
        /// The configured type.
        wanted: ValueType,
    },
}

impl fmt::Display for BindingSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pointer(pointer) if pointer.is_empty() => formatter.write_str("the payload"),
            Self::Pointer(pointer) => write!(formatter, "payload field {pointer}"),
            Self::Header(name) => write!(formatter, "header {name}"),
        }
    }
}

impl Binding {
    /// Checks a binding that is to be called `name`.
    ///
    /// # Errors
    /// The name, the pointer or the header name cannot be used.
    pub fn check(&self, name: &str) -> Result<(), InvalidBinding> {
        let mut characters = name.chars();
        let valid = characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
            && characters.all(|character| character.is_ascii_alphanumeric() || character == '_');
        if !valid {
            return Err(InvalidBinding::Name { name: name.into() });
        }
        if BUILT_IN_NAMES.contains(&name) {
            return Err(InvalidBinding::BuiltIn { name: name.into() });
        }
        match &self.source {
            BindingSource::Header(header) if header.is_empty() => Err(InvalidBinding::Header),
            BindingSource::Pointer(pointer) if !is_pointer(pointer) => {
                Err(InvalidBinding::Pointer { pointer: pointer.clone() })
            }
            BindingSource::Header(_) | BindingSource::Pointer(_) => Ok(()),
        }
    }

    /// Reads the value; `None` when it is absent or null.
    fn read(&self, name: &str, message: &Message, payload: &Json) -> Result<Option<Value>, FieldRefusal> {
        let found = match &self.source {
            BindingSource::Pointer(pointer) => payload.pointer(pointer).cloned(),
            BindingSource::Header(wanted) => match header(message, wanted) {
                None => None,
                Some(text) if matches!(self.value_type, ValueType::String | ValueType::Timestamp) => {
                    Some(Json::Text(text.into()))
                }
                Some(text) => Some(Json::parse(text.as_bytes()).map_err(|_| FieldRefusal::HeaderText {
                    name: name.into(),
                    source_text: self.source.to_string(),
                    wanted: self.value_type,
                })?),
            },
        };
        let Some(json) = found else { return Ok(None) };
        match Value::read(&json, self.value_type) {
            Ok(Value::Null) => Ok(None),
            Ok(value) => Ok(Some(value)),
            Err(cause) => Err(FieldRefusal::WrongType {
                name: name.into(),
                source_text: self.source.to_string(),
                cause,
            }),
        }
    }
}

impl Bindings {
    /// The bindings under their names; each is checked.
    ///
    /// # Errors
    /// The first binding that cannot be used.
    pub fn new(bindings: BTreeMap<String, Binding>) -> Result<Self, InvalidBinding> {
        bindings.iter().try_for_each(|(name, binding)| binding.check(name))?;
        Ok(Self(bindings))
    }

    /// The binding called `name`; built-in names have none.
    pub fn get(&self, name: &str) -> Option<&Binding> {
        self.0.get(name)
    }

    /// Every name a key, a comparison or a statement may use: the bindings and the built-in names.
    pub fn known_names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str).chain(BUILT_IN_NAMES)
    }

    /// What to write instead of an unknown name: the nearest known one, or the binding that is missing.
    pub(super) fn fix_for(&self, name: &str) -> String {
        nearest_name(name, self.known_names()).map_or_else(
            || format!("bind it with bind.{name} = {{ pointer = \"/…\", type = \"…\" }}"),
            |near| format!("did you mean {near:?}?"),
        )
    }

    /// Reads every value of a message.
    ///
    /// # Errors
    /// A required value is missing, or a value has another type than configured.
    pub fn read(&self, message: &Message) -> Result<Fields, FieldRefusal> {
        let from_payload = |binding: &Binding| matches!(binding.source, BindingSource::Pointer(_));
        // A consumer that binds nothing of the payload takes payloads that are not JSON.
        let payload =
            if self.0.values().any(from_payload) { Json::parse(&message.body)? } else { Json::Null };
        let text = |text: &Option<String>| match text {
            Some(text) if !text.is_empty() => Value::Text(text.clone()),
            Some(_) | None => Value::Null,
        };
        let mut fields = Fields::from([
            ("event_id".to_owned(), text(&message.id)),
            ("event_type".to_owned(), text(&message.message_type)),
        ]);
        for (name, binding) in &self.0 {
            let value = binding.read(name, message, &payload)?;
            if binding.required && value.is_none() {
                let source_text = binding.source.to_string();
                return Err(FieldRefusal::Missing { name: name.clone(), source_text });
            }
            fields.insert(name.clone(), value.unwrap_or(Value::Null));
        }
        Ok(fields)
    }
}

/// The first header of that exact name.
pub(super) fn header<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    message.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn is_pointer(text: &str) -> bool {
    let escapes_are_complete = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    (text.is_empty() || text.starts_with('/')) && escapes_are_complete
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn one(source: BindingSource, value_type: ValueType, required: bool) -> Bindings {
        Bindings::new(BTreeMap::from([("field".to_owned(), Binding { source, value_type, required })]))
            .unwrap()
    }

    fn pointed(pointer: &str, value_type: ValueType) -> Bindings {
        one(BindingSource::Pointer(pointer.into()), value_type, true)
    }

    fn message(body: &str) -> Message {
        Message { body: Bytes::copy_from_slice(body.as_bytes()), ..Message::default() }
    }

    /// B48, serde-rs/json#1170: no number goes through a float.
    #[test]
    fn numbers_are_read_exactly_or_refused() {
        for (body, value_type, expected) in [
            ("9007199254740993", ValueType::Integer, Some(Value::Integer(9_007_199_254_740_993))),
            ("18446744073709551617", ValueType::Integer, Some(Value::Integer(18_446_744_073_709_551_617))),
            ("1.0", ValueType::Integer, Some(Value::Integer(1))),
            ("1e2", ValueType::Integer, Some(Value::Integer(100))),
            ("-0", ValueType::Integer, Some(Value::Integer(0))),
            ("1.5", ValueType::Integer, None),
            ("1e400", ValueType::Integer, None),
            ("\"1\"", ValueType::Integer, None),
            ("1.10", ValueType::Decimal, Some(Value::Decimal("1.1".into()))),
            ("1.5777777777770001", ValueType::Decimal, Some(Value::Decimal("1.5777777777770001".into()))),
            ("1", ValueType::String, None),
            ("1", ValueType::Boolean, None),
            ("{\"b\":1.0,\"a\":2}", ValueType::Json, Some(Value::Json("{\"a\":2,\"b\":1}".into()))),
        ] {
            let read = pointed("/x", value_type).read(&message(&format!("{{\"x\":{body}}}")));

            assert_eq!(read.ok().and_then(|fields| fields.get("field").cloned()), expected, "{body}");
        }
    }

    #[test]
    fn a_required_value_that_is_absent_or_null_is_refused_and_an_optional_one_is_null() {
        for body in ["{}", "{\"x\":null}"] {
            let refusal = pointed("/x", ValueType::Integer).read(&message(body)).unwrap_err();
            let optional = one(BindingSource::Pointer("/x".into()), ValueType::Integer, false);

            assert_eq!(refusal.to_string(), "field is missing: payload field /x is absent or null");
            assert_eq!(optional.read(&message(body)).unwrap()["field"], Value::Null);
        }
    }

    #[test]
    fn a_wrong_type_is_named_without_showing_the_payload() {
        let refusal = pointed("/card", ValueType::Integer).read(&message(r#"{"card":"4111"}"#)).unwrap_err();

        let text = refusal.to_string();
        assert_eq!(text, "field has the wrong type: payload field /card is a string, not an integer");
    }

    #[test]
    fn headers_are_read_by_their_exact_name_and_typed_like_the_payload() {
        let mut message = message("not json at all");
        message.headers = vec![("Tries".into(), "8".into()), ("tries".into(), "9".into())];
        let source = BindingSource::Header("tries".into());

        let number = one(source.clone(), ValueType::Integer, true).read(&message).unwrap();
        let text = one(source, ValueType::String, true).read(&message).unwrap();

        assert_eq!(number["field"], Value::Integer(9));
        assert_eq!(text["field"], Value::Text("9".into()));
    }

    #[test]
    fn a_payload_that_is_not_json_is_refused_only_when_something_reads_it() {
        let reads = pointed("/x", ValueType::Integer);
        let ignores = Bindings::default();

        assert!(matches!(reads.read(&message("oops")), Err(FieldRefusal::NotJson(_))));
        assert!(ignores.read(&message("oops")).is_ok());
    }

    #[test]
    fn an_envelope_without_an_id_or_a_type_gives_null_and_an_empty_one_too() {
        let read = |text: Option<&str>| {
            let (id, message_type) = (text.map(str::to_owned), text.map(str::to_owned));
            let fields =
                Bindings::default().read(&Message { id, message_type, ..Message::default() }).unwrap();
            (fields["event_id"].clone(), fields["event_type"].clone())
        };

        assert_eq!(read(None), (Value::Null, Value::Null));
        assert_eq!(read(Some("")), (Value::Null, Value::Null));
        assert_eq!(read(Some("x")), (Value::Text("x".into()), Value::Text("x".into())));
    }

    #[test]
    fn a_header_that_does_not_read_as_its_type_is_refused_with_its_name() {
        let mut message = message("{}");
        message.headers = vec![("tries".into(), "many".into()), ("at".into(), "2026-01-31T23:59:59Z".into())];
        let header = |name: &str, value_type| one(BindingSource::Header(name.into()), value_type, true);

        let refusal = header("tries", ValueType::Integer).read(&message).unwrap_err();
        let missing = header("absent", ValueType::String).read(&message).unwrap_err();
        let instant = header("at", ValueType::Timestamp).read(&message).unwrap();

        assert_eq!(
            refusal.to_string(),
            "field has the wrong type: header tries is text that does not read as an integer"
        );
        assert_eq!(missing.to_string(), "field is missing: header absent is absent or null");
        assert_eq!(instant["field"].text(), "2026-01-31 23:59:59.000000");
    }

    #[test]
    fn the_whole_payload_is_called_by_its_name() {
        let refusal = pointed("", ValueType::Integer).read(&message("{}")).unwrap_err();

        assert_eq!(refusal.to_string(), "field has the wrong type: the payload is an object, not an integer");
    }

    #[test]
    fn names_and_pointers_that_cannot_work_are_refused_at_start() {
        let pointer = |pointer: &str| Binding {
            source: BindingSource::Pointer(pointer.into()),
            value_type: ValueType::Integer,
            required: true,
        };
        for (name, binding, accepted) in [
            ("user_id", pointer("/userId"), true),
            ("whole", pointer(""), true),
            ("escaped", pointer("/a~1b~0c"), true),
            ("_x1", pointer("/0"), true),
            ("_", pointer("/x"), true),
            ("from_header", Binding { source: BindingSource::Header("x".into()), ..pointer("/x") }, true),
            ("1x", pointer("/x"), false),
            ("user-id", pointer("/x"), false),
            ("größe", pointer("/x"), false),
            ("", pointer("/x"), false),
            ("event_id", pointer("/x"), false),
            ("x", pointer("orderId"), false),
            ("x", pointer("/a~2"), false),
            ("x", pointer("/a~"), false),
            ("x", Binding { source: BindingSource::Header(String::new()), ..pointer("/x") }, false),
        ] {
            assert_eq!(binding.check(name).is_ok(), accepted, "{name:?} {binding:?}");
        }
    }
}
