//! JSON Schema: payloads that do not fit are refused before anything else looks at them.
//!
//! Numbers are compared exactly: the JSON library is built with arbitrary precision, so that neither an id above 2^53
//! nor a long fraction is rounded on its way to a rule.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use consign::consumer::Interpret;
use consign_core::declared::{DeclaredChange, DeclaredConsumer};
use consign_core::delivery::Message;
use consign_core::operation::Operation;
use consign_core::ports::InboxTransaction;
use jsonschema::Validator;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

/// A schema, ready to check payloads.
#[derive(Debug)]
pub struct PayloadSchema {
    validator: Validator,
    /// Every name that the schema itself spells: only these are shown of a payload.
    names: BTreeSet<String>,
}

/// A declared consumer that refuses payloads which do not fit its schema.
#[derive(Clone, Debug)]
pub struct Validated {
    /// The consumer.
    pub consumer: Arc<DeclaredConsumer>,
    /// Its schema; `None` takes every payload.
    pub schema: Option<Arc<PayloadSchema>>,
}

impl PayloadSchema {
    /// Reads a schema. Its draft is what `$schema` says, else 2020-12; `format` is checked; references lead to places
    /// within the schema only, since nothing is fetched.
    ///
    /// # Errors
    /// The text is not JSON, is no schema, or refers to something outside of it; says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let schema: Value = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
        let validator =
            jsonschema::options().should_validate_formats(true).build(&schema).map_err(|error| {
                format!("is not a usable JSON Schema: {error} (at {:?})", error.schema_path().as_str())
            })?;
        let mut names = BTreeSet::new();
        collect_names(&schema, &mut names);
        Ok(Self { validator, names })
    }

    /// Checks a payload.
    ///
    /// # Errors
    /// It is not JSON or does not fit: the place and the keyword of the first rule that failed. Of the payload, only
    /// names that the schema spells and positions in lists are shown.
    pub fn check(&self, body: &[u8]) -> Result<(), String> {
        let payload: Value = serde_json::from_slice(body).map_err(|error| {
            format!("the payload is not JSON, at line {} column {}", error.line(), error.column())
        })?;
        let Err(error) = self.validator.validate(&payload) else { return Ok(()) };
        let place = match self.shown(error.instance_path().as_str()) {
            root if root.is_empty() => "the payload".to_owned(),
            pointer => format!("payload field {pointer}"),
        };
        let keyword = error.kind().keyword();
        let rule = error.schema_path().as_str();
        let mut text = format!("{place} does not fit the schema: {keyword} failed, rule {rule:?}");
        if let ValidationErrorKind::Required { property } = error.kind() {
            // The name comes from the schema.
            let _ = write!(text, ", {property} is missing");
        }
        Err(text)
    }

    /// A JSON pointer with `*` for every name that only the payload spells.
    fn shown(&self, pointer: &str) -> String {
        let known = |token: &str| {
            let name = token.replace("~1", "/").replace("~0", "~");
            token.bytes().all(|byte| byte.is_ascii_digit()) && token.len() < 6 || self.names.contains(&name)
        };
        let tokens = pointer.split('/').skip(1).map(|token| if known(token) { token } else { "*" });
        tokens.fold(String::new(), |shown, token| shown + "/" + token)
    }
}

fn collect_names(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(entries) => {
            for (name, inner) in entries {
                names.insert(name.clone());
                collect_names(inner, names);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

impl Validated {
    /// Reads a message: its schema first, then the consumer's own demands.
    ///
    /// # Errors
    /// The message can never be processed as it is; the text says why.
    pub fn operation(&self, message: &Message) -> Result<(Operation, DeclaredChange), String> {
        if let Some(schema) = self.schema.as_ref().filter(|_| message.undecodable.is_none()) {
            schema.check(&message.body)?;
        }
        self.consumer.operation(message).map_err(|refusal| refusal.to_string())
    }
}

impl<Tx: InboxTransaction> Interpret<Tx> for Validated {
    type Handler = DeclaredChange;

    fn name(&self) -> &str {
        self.consumer.name()
    }

    fn interpret(&self, message: &Message) -> Result<(Operation, DeclaredChange), String> {
        self.operation(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(schema: &str, payload: &str) -> Option<String> {
        PayloadSchema::parse(schema).unwrap().check(payload.as_bytes()).err()
    }

    const PAID: &str = r#"{
        "type": "object",
        "required": ["orderId", "amount"],
        "properties": {
            "orderId": { "type": "integer", "minimum": 1 },
            "amount": { "type": "number", "multipleOf": 0.01, "maximum": 9007199254740993 },
            "paidAt": { "type": "string", "format": "date-time" },
            "lines": { "type": "array", "items": { "type": "object", "properties": { "sku": { "type": "string" } } } },
            "notes": { "type": "object", "additionalProperties": { "type": "string" } }
        }
    }"#;

    #[test]
    fn a_payload_that_fits_is_taken() {
        let whole = r#"{"orderId":1,"amount":10.50,"paidAt":"2026-01-31T23:59:59Z","lines":[{"sku":"a"}]}"#;

        assert_eq!(refusal(PAID, whole), None);
    }

    #[test]
    fn the_place_and_the_keyword_that_failed_are_named() {
        for (payload, text) in [
            (
                r#"{"orderId":"1","amount":1}"#,
                "payload field /orderId does not fit the schema: type failed, rule \"/properties/orderId/type\"",
            ),
            (
                r#"{"orderId":1}"#,
                "the payload does not fit the schema: required failed, rule \"/required\", \"amount\" is missing",
            ),
            (
                r#"{"orderId":1,"amount":1,"lines":[{"sku":"a"},{"sku":2}]}"#,
                "payload field /lines/1/sku does not fit the schema: type failed, rule \"/properties/lines/items/properties/sku/type\"",
            ),
            (
                r#"{"orderId":1,"amount":1,"paidAt":"yesterday"}"#,
                "payload field /paidAt does not fit the schema: format failed, rule \"/properties/paidAt/format\"",
            ),
            ("oops", "the payload is not JSON, at line 1 column 1"),
        ] {
            assert_eq!(refusal(PAID, payload).as_deref(), Some(text));
        }
    }

    /// Payloads hold what nobody may read in a log: neither values nor names that only the payload spells are shown.
    #[test]
    fn nothing_of_the_payload_is_shown() {
        let closed = PAID.replacen(
            "\"type\": \"object\",",
            "\"type\": \"object\", \"additionalProperties\": false,",
            1,
        );
        for (schema, payload) in [
            (PAID, r#"{"orderId":1,"amount":"s3cr3t"}"#),
            (PAID, r#"{"orderId":1,"amount":1,"notes":{"s3cr3t":1}}"#),
            (PAID, r#"{"orderId":1,"amount":1,"paidAt":"s3cr3t"}"#),
            (&closed, r#"{"orderId":1,"amount":1,"s3cr3t":1}"#),
            (PAID, r#"{"orderId":1,"amount":1,"s3cr3t"#),
            (r#"{"enum":["a"]}"#, r#""s3cr3t""#),
            (r#"{"propertyNames":{"maxLength":1}}"#, r#"{"s3cr3t":1}"#),
        ] {
            let text = refusal(schema, payload).unwrap();

            assert!(!text.contains("s3cr3t"), "{text}");
        }
        let hidden = refusal(PAID, r#"{"orderId":1,"amount":1,"notes":{"4111 1111":1}}"#).unwrap();
        assert!(hidden.starts_with("payload field /notes/* does not fit"), "{hidden}");
    }

    /// B48, serde-rs/json#1170: no number is rounded on its way to a rule.
    #[test]
    fn numbers_are_judged_exactly() {
        for (schema, payload, fits) in [
            (r#"{"maximum":9007199254740992}"#, "9007199254740993", false),
            (r#"{"const":9007199254740993}"#, "9007199254740992", false),
            (r#"{"const":9007199254740993}"#, "9007199254740993.0", true),
            (r#"{"minimum":18446744073709551616}"#, "18446744073709551615", false),
            (r#"{"minimum":18446744073709551616}"#, "18446744073709551617", true),
            (r#"{"enum":[0.1]}"#, "0.10000000000000000555", false),
            (r#"{"enum":[0.1]}"#, "0.100", true),
            (r#"{"multipleOf":0.01}"#, "1234567890123456789.01", true),
            (r#"{"multipleOf":0.01}"#, "1234567890123456789.011", false),
            (r#"{"multipleOf":0.01}"#, "19.99", true),
            (r#"{"type":"integer"}"#, "1e2", true),
            (r#"{"type":"integer"}"#, "123456789012345678901234567890.5", false),
            (r#"{"type":"integer"}"#, "1e400", true),
            (r#"{"uniqueItems":true}"#, "[9007199254740992,9007199254740993]", true),
            (r#"{"uniqueItems":true}"#, "[1,1.0]", false),
        ] {
            assert_eq!(refusal(schema, payload).is_none(), fits, "{payload} under {schema}");
        }
    }

    /// A number of a few bytes can stand for one of a billion digits.
    #[test]
    fn huge_exponents_and_deep_nesting_cost_nothing() {
        for schema in
            [r#"{"type":"integer"}"#, r#"{"multipleOf":0.01}"#, r#"{"minimum":1}"#, r#"{"const":1}"#]
        {
            let _ = refusal(schema, "1e999999999");
            let _ = refusal(schema, "1e-999999999");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(refusal("true", &deep).is_some());
    }

    #[test]
    fn schemas_that_cannot_work_are_refused() {
        for (schema, problem) in [
            ("{", "is not JSON: "),
            (r#"{"type":"intger"}"#, "is not a usable JSON Schema: "),
            (r#"{"pattern":"("}"#, "is not a usable JSON Schema: "),
            (r#"{"$ref":"https://schemas.example/order.json"}"#, "is not a usable JSON Schema: "),
            (r#"{"$ref":"other.json"}"#, "is not a usable JSON Schema: "),
            (r##"{"$ref":"#/definitions/nowhere"}"##, "is not a usable JSON Schema: "),
        ] {
            let error = PayloadSchema::parse(schema).unwrap_err();

            assert!(error.starts_with(problem), "{error}");
        }
    }
}
