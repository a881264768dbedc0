//! A share of a whole, as a number; a variable's value comes as text.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

/// A number that should lie between 0 and 1; the checker says so when it does not.
#[derive(Clone, Copy)]
pub struct Share(pub f64);

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShareVisitor)
    }
}

struct ShareVisitor;

impl Visitor<'_> for ShareVisitor {
    type Value = Share;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number from 0 to 1")
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Share, E> {
        Ok(Share(number))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Share, E> {
        let number = i32::try_from(number);
        number.map(|number| Share(number.into())).map_err(|_| E::custom("a number from 0 to 1 is wanted"))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Share, E> {
        text.parse().map(Share).map_err(|_| E::invalid_type(de::Unexpected::Str(text), &self))
    }
}
