//! Key templates: how a business key is formed from a message's values.

use crate::declared::binding::{BindingSource, Bindings, Fields};
use crate::value::{Value, ValueType};

/// The template of a business key, such as `order:{order_id}:paid`. Placeholders are binding names.
///
/// Two different sets of values never give the same key: a value that contains the text which ends its place in
/// the template is refused, and so are two placeholders with nothing between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTemplate {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Placeholder(String),
}

/// Why a key template cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// A brace has no partner.
    #[error("{template:?} has an unpaired brace: write placeholders as {{name}}")]
    Brace {
        /// The whole template.
        template: String,
    },
    /// Nothing in the key comes from the message.
    #[error("{template:?} has no placeholder, so every delivery would be the same operation: add a {{name}}")]
    Constant {
        /// The whole template.
        template: String,
    },
    /// `1` and `23` would give the same key as `12` and `3`.
    #[error(
        "{template:?} has placeholders without text between them, so different values could give one key: put a separator between them"
    )]
    Adjacent {
        /// The whole template.
        template: String,
    },
    /// A placeholder names no binding.
    #[error("{template:?} uses unknown name {name:?}: {fix}")]
    UnknownName {
        /// The whole template.
        template: String,
        /// The placeholder's name.
        name: String,
        /// The nearest known name, or how to add one.
        fix: String,
    },
    /// The value is read from a header, and copies of one event may differ in their headers.
    #[error(
        "{template:?} uses {name:?}, which is read from a header and may differ between copies of one event: take it from the payload"
    )]
    Header {
        /// The whole template.
        template: String,
        /// The placeholder's name.
        name: String,
    },
    /// The value may be absent.
    #[error(
        "{template:?} uses {name:?}, which is optional: a key needs it in every message, remove required = false"
    )]
    Optional {
        /// The whole template.
        template: String,
        /// The placeholder's name.
        name: String,
    },
    /// The value has no plain text form.
    #[error(
        "{template:?} uses {name:?}, which has type json: a key is made of integers, decimals, strings, booleans and timestamps"
    )]
    Structured {
        /// The whole template.
        template: String,
        /// The placeholder's name.
        name: String,
    },
}

/// Why a message gives no usable key. Payload content is never part of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRefusal {
    /// A value is null, absent or empty.
    #[error("{name} is {found}, and the key needs it")]
    NoValue {
        /// The placeholder's name.
        name: String,
        /// What was found instead of a value.
        found: &'static str,
    },
    /// A value contains the text that ends its place in the key.
    #[error(
        "{name} contains {separator:?}, which follows it in the key, so two different values could give one key: choose another separator in the key"
    )]
    Ambiguous {
        /// The placeholder's name.
        name: String,
        /// The text after the placeholder.
        separator: String,
    },
    /// The key does not fit its column; it is never cut.
    #[error(
        "the key has {characters} characters, more than the {limit} that fit: use shorter fields in the key"
    )]
    TooLong {
        /// The rendered key's length in characters.
        characters: usize,
        /// How many fit.
        limit: usize,
    },
}

impl KeyTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// Unpaired braces, no placeholder at all, or two placeholders with nothing between them.
    pub fn parse(template: &str) -> Result<Self, InvalidKey> {
        let brace = || InvalidKey::Brace { template: template.into() };
        let mut parts = Vec::new();
        let mut rest = template;
        while let Some(open) = rest.find('{') {
            let (literal, tail) = rest.split_at(open);
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.into()));
            } else if matches!(parts.last(), Some(Part::Placeholder(_))) {
                return Err(InvalidKey::Adjacent { template: template.into() });
            }
            let (name, after) = tail[1..].split_once('}').ok_or_else(brace)?;
            parts.push(Part::Placeholder(name.into()));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.into()));
        }
        let stray = parts.iter().any(|part| match part {
            Part::Literal(text) | Part::Placeholder(text) => text.contains(['{', '}']),
        });
        if stray {
            return Err(brace());
        }
        if !parts.iter().any(|part| matches!(part, Part::Placeholder(_))) {
            return Err(InvalidKey::Constant { template: template.into() });
        }
        Ok(Self { text: template.into(), parts })
    }

    /// The template as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Checks every placeholder against the bindings.
    ///
    /// # Errors
    /// A placeholder is unknown, optional, structured, or read from a header.
    pub fn check(&self, bindings: &Bindings) -> Result<(), InvalidKey> {
        let template = || self.text.clone();
        for part in &self.parts {
            let Part::Placeholder(name) = part else { continue };
            if !bindings.known_names().any(|known| known == name) {
                let fix = bindings.fix_for(name);
                return Err(InvalidKey::UnknownName { template: template(), name: name.clone(), fix });
            }
            let Some(binding) = bindings.get(name) else { continue };
            if matches!(binding.source, BindingSource::Header(_)) {
                return Err(InvalidKey::Header { template: template(), name: name.clone() });
            }
            if !binding.required {
                return Err(InvalidKey::Optional { template: template(), name: name.clone() });
            }
            if binding.value_type == ValueType::Json {
                return Err(InvalidKey::Structured { template: template(), name: name.clone() });
            }
        }
        Ok(())
    }

    /// Forms the key of a message.
    ///
    /// # Errors
    /// A value is null, absent, empty or structured, makes the key ambiguous, or the key is longer than
    /// `characters_max`.
    pub fn render(&self, fields: &Fields, characters_max: usize) -> Result<String, KeyRefusal> {
        let mut key = String::new();
        for (index, part) in self.parts.iter().enumerate() {
            match part {
                Part::Literal(literal) => key.push_str(literal),
                Part::Placeholder(name) => {
                    let text = key_text(name, fields.get(name).unwrap_or(&Value::Null))?;
                    if let Some(separator) = self.separator_after(index)
                        && format!("{text}{separator}").find(separator) != Some(text.len())
                    {
                        return Err(KeyRefusal::Ambiguous {
                            name: name.clone(),
                            separator: separator.to_owned(),
                        });
                    }
                    key.push_str(&text);
                }
            }
        }
        let characters = key.chars().count();
        if characters > characters_max {
            return Err(KeyRefusal::TooLong { characters, limit: characters_max });
        }
        Ok(key)
    }

    /// The text that ends the placeholder at `index`, when another placeholder follows it. The last placeholder
    /// ends where the key's fixed tail begins, whatever it contains.
    fn separator_after(&self, index: usize) -> Option<&str> {
        match (self.parts.get(index + 1), self.parts.get(index + 2)) {
            (Some(Part::Literal(separator)), Some(_)) => Some(separator),
            _ => None,
        }
    }
}

fn key_text(name: &str, value: &Value) -> Result<String, KeyRefusal> {
    let no_value = |found| Err(KeyRefusal::NoValue { name: name.into(), found });
    match value {
        Value::Null => no_value("absent or null"),
        Value::Text(text) if text.is_empty() => no_value("empty"),
        Value::Json(_) => no_value("structured"),
        Value::Text(_) | Value::Integer(_) | Value::Decimal(_) | Value::Boolean(_) | Value::Timestamp(_) => {
            Ok(value.text())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn fields(values: &[(&str, Value)]) -> Fields {
        values.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    fn render(template: &str, values: &[(&str, Value)]) -> Result<String, KeyRefusal> {
        KeyTemplate::parse(template).unwrap().render(&fields(values), 128)
    }

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    #[test]
    fn keys_are_rendered_exactly() {
        for (template, value, key) in [
            ("order:{id}:paid", Value::Integer(9_007_199_254_740_993), "order:9007199254740993:paid"),
            ("{id}", Value::Integer(-1), "-1"),
            ("{id}!", Value::Decimal("10.5".into()), "10.5!"),
            ("Order:{id}", text("A b "), "Order:A b "),
            ("{id}", Value::Boolean(true), "true"),
            ("{id}", text("{id}"), "{id}"),
        ] {
            assert_eq!(render(template, &[("id", value)]).as_deref(), Ok(key));
        }
    }

    #[test]
    fn a_value_that_says_nothing_gives_no_key() {
        for (value, found) in [
            (Value::Null, "absent or null"),
            (text(""), "empty"),
            (Value::Json("[1]".into()), "structured"),
            (Value::Json("{}".into()), "structured"),
        ] {
            let refusal = render("order:{id}", &[("id", value)]).unwrap_err();

            assert_eq!(refusal, KeyRefusal::NoValue { name: "id".into(), found });
        }
        assert!(render("order:{id}", &[]).is_err());
    }

    #[test]
    fn different_values_never_give_the_same_key() {
        let render = |a: &str, b: &str| render("x:{a}:{b}", &[("a", text(a)), ("b", text(b))]);

        assert_eq!(render("1", "2:3").unwrap(), "x:1:2:3");
        assert!(matches!(render("1:2", "3"), Err(KeyRefusal::Ambiguous { .. })));
    }

    /// Where the last value ends is known from the end of the key.
    #[test]
    fn the_last_value_may_contain_what_follows_it() {
        for (template, value, key) in [
            ("{id}:paid", "1:paid", "1:paid:paid"),
            ("x:{id}:paid", "1:paid", "x:1:paid:paid"),
            ("{id}", ":", ":"),
        ] {
            assert_eq!(render(template, &[("id", text(value))]).as_deref(), Ok(key), "{template}");
        }
        let three = |b: &str| render("{a}/{b}/{c}", &[("a", text("1")), ("b", text(b)), ("c", text("3/4"))]);
        assert_eq!(three("2").as_deref(), Ok("1/2/3/4"));
        assert!(matches!(three("2/"), Err(KeyRefusal::Ambiguous { name, .. }) if name == "b"));
    }

    #[test]
    fn a_separator_that_begins_inside_the_value_is_ambiguous_too() {
        let refusal = render("{a}::{b}", &[("a", text("1:")), ("b", text("2"))]);

        assert!(matches!(refusal, Err(KeyRefusal::Ambiguous { .. })), "{refusal:?}");
    }

    #[test]
    fn a_key_that_does_not_fit_is_refused_with_its_length_and_never_cut() {
        let fitting = render("{id}", &[("id", text(&"é".repeat(128)))]);
        let refusal = render("{id}", &[("id", text(&"é".repeat(129)))]).unwrap_err();

        assert!(fitting.is_ok());
        assert_eq!(refusal, KeyRefusal::TooLong { characters: 129, limit: 128 });
    }

    #[test]
    fn a_key_is_made_of_values_that_every_message_has_as_plain_text() {
        let bound = |value_type, required| {
            let source = BindingSource::Pointer("/x".into());
            crate::declared::Binding { source, value_type, required }
        };
        let bindings = Bindings::new(BTreeMap::from([
            ("id".to_owned(), bound(ValueType::Integer, true)),
            ("maybe".to_owned(), bound(ValueType::Integer, false)),
            ("whole".to_owned(), bound(ValueType::Json, true)),
        ]))
        .unwrap();
        let check = |template: &str| KeyTemplate::parse(template).unwrap().check(&bindings);

        assert_eq!(check("{id}:{event_id}"), Ok(()));
        assert!(matches!(check("{id}:{maybe}"), Err(InvalidKey::Optional { name, .. }) if name == "maybe"));
        assert!(matches!(check("{whole}"), Err(InvalidKey::Structured { name, .. }) if name == "whole"));
        let fix = "did you mean \"id\"?".to_owned();
        let (template, name) = ("{di}".to_owned(), "di".to_owned());
        assert_eq!(check("{di}"), Err(InvalidKey::UnknownName { template, name, fix }));
    }

    #[test]
    fn malformed_templates_are_refused() {
        for template in ["", "order", "order:{id", "order:id}", "{{id}}", "{a}{b}", "{a}}{b}", "{a{b}"] {
            assert!(KeyTemplate::parse(template).is_err(), "{template:?} was accepted");
        }
    }
}
