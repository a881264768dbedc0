//! What one consumer demands of the marker table: columns to compare by, and room for its keys.

use consign_core::finding::Finding;
use consign_core::value::ValueType;

use crate::introspection::{Column, ColumnKind, TableShape};
use crate::mapping::{ComparisonColumn, Identifier};

const MIGRATE: &str = "run `consign migrate`";

/// What one consumer demands of the marker table.
#[derive(Clone, Debug)]
pub struct MarkerDemand {
    /// The consumer's name, part of every key.
    pub consumer: String,
    /// The longest business key, in characters.
    pub key_characters_max: usize,
    /// The columns it compares by, in its current version and in earlier ones.
    pub columns: Vec<ComparisonColumn>,
    /// Whether any version compares by fingerprint.
    pub fingerprint: bool,
    /// The version of its comparison.
    pub comparison_version: u32,
}

/// How a server treats a column's declared type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Typing {
    /// Every value becomes one of that type, or is refused: MySQL.
    Declared,
    /// Text stays text unless it looks like a number: SQLite.
    Affinity,
}

impl MarkerDemand {
    /// What of the table does not fit; `shape` is `None` when there is no such table.
    pub(crate) fn findings(
        &self,
        table: &Identifier,
        shape: Option<&TableShape>,
        typing: Typing,
    ) -> Vec<Finding> {
        let Some(shape) = shape else {
            let text = "there is no such table";
            return vec![Finding::error("marker-table-missing", table.as_str(), text, MIGRATE)];
        };
        let mut findings = Vec::new();
        findings.extend(self.room(table, shape));
        for wanted in &self.columns {
            match shape.others.get(&wanted.name.as_str().to_ascii_lowercase()) {
                Some(column) => findings.extend(fit(table, column, wanted.kind, typing)),
                None => findings.push(Finding::error(
                    "comparison-column-missing",
                    table.as_str(),
                    format!("lacks {}, which {} compares", wanted.name, self.consumer),
                    MIGRATE,
                )),
            }
        }
        let optional = [
            ("fingerprint", self.fingerprint, "by which it compares"),
            ("comparison_version", self.comparison_version > 1, "which says what a marker was compared by"),
        ];
        for (column, wanted, why) in optional {
            if wanted && !shape.has(column) {
                let text = format!("lacks {column}, {why}");
                findings.push(Finding::error("comparison-column-missing", table.as_str(), text, MIGRATE));
            }
        }
        findings
    }

    fn room(&self, table: &Identifier, shape: &TableShape) -> Vec<Finding> {
        let characters = self.consumer.chars().count() as u64;
        let mut findings = Vec::new();
        if let Some(column) = shape.column("consumer_name")
            && let Some(limit) = column.length.filter(|limit| *limit < characters)
        {
            findings.push(Finding::error(
                "marker-key-short",
                subject(table, column),
                format!(
                    "holds {limit} and the consumer's name has {characters}: every delivery would be refused"
                ),
                "widen it to VARCHAR(64)",
            ));
        }
        let longest = self.key_characters_max as u64;
        if let Some(column) = shape.column("business_key")
            && let Some(limit) = column.length.filter(|limit| *limit < longest)
        {
            findings.push(Finding::warning(
                "marker-key-short",
                subject(table, column),
                format!("holds {limit} and keys may have {longest}: longer ones are refused, never cut"),
                format!("widen it to VARCHAR({longest})"),
            ));
        }
        findings
    }
}

/// What is wrong with a column for values of this type.
fn fit(table: &Identifier, column: &Column, kind: ValueType, typing: Typing) -> Option<Finding> {
    let error = |text: &str, fix: &str| {
        let text = format!("is {} {text}", column.declared);
        Some(Finding::error("comparison-column-type", subject(table, column), text, fix))
    };
    let warning = |text: &str, fix: &str| {
        let text = format!("is {} {text}", column.declared);
        Some(Finding::warning("comparison-column-type", subject(table, column), text, fix))
    };
    let text = matches!(column.kind, ColumnKind::Text | ColumnKind::Bytes);
    match kind {
        ValueType::Integer | ValueType::Boolean | ValueType::Decimal if column.kind == ColumnKind::Float => {
            error("and rounds: different values would be the same", "make it DECIMAL or BIGINT")
        }
        ValueType::Integer | ValueType::Boolean => match column.kind {
            ColumnKind::Integer | ColumnKind::Decimal | ColumnKind::Text | ColumnKind::Bytes => None,
            _ => error("and the binding is a number", "make it BIGINT"),
        },
        ValueType::Decimal => match column.kind {
            ColumnKind::Decimal | ColumnKind::Text | ColumnKind::Bytes => None,
            ColumnKind::Integer => warning(
                "and refuses fractions, which the binding allows",
                "make it DECIMAL, or bind an integer",
            ),
            _ => error("and the binding is a decimal number", "make it DECIMAL(65, 18)"),
        },
        ValueType::String if text => None,
        ValueType::String => error("and the binding is text", "make it a text column such as VARCHAR(255)"),
        ValueType::Json => match column.kind {
            ColumnKind::Text | ColumnKind::Bytes => None,
            ColumnKind::Json if typing == Typing::Affinity => None,
            ColumnKind::Json => {
                error("and keeps numbers as floats: different values would be the same", "make it LONGTEXT")
            }
            _ => error("and the binding is json", "make it a text column"),
        },
        ValueType::Timestamp => match (column.kind, typing) {
            (ColumnKind::DateTime, Typing::Declared) if column.declared.starts_with("timestamp") => {
                error("and means another instant in another session's time zone", "make it DATETIME(6)")
            }
            (ColumnKind::DateTime, Typing::Declared) if column.fraction.unwrap_or(0) < 6 => {
                warning("and refuses times that it would round", "make it DATETIME(6)")
            }
            (ColumnKind::DateTime | ColumnKind::Text | ColumnKind::Bytes, _) | (_, Typing::Affinity) => None,
            (_, Typing::Declared) => error("and the binding is a timestamp", "make it DATETIME(6)"),
        },
    }
}

fn subject(table: &Identifier, column: &Column) -> String {
    format!("{table}.{}", column.name)
}

#[cfg(test)]
mod tests {
    use consign_core::finding::Severity;

    use super::*;
    use crate::introspection::Unit;

    fn column(name: &str, kind: ColumnKind, declared: &str) -> Column {
        Column {
            name: name.into(),
            kind,
            declared: declared.into(),
            length: None,
            unit: Unit::Characters,
            character_set: None,
            collation: None,
            fraction: None,
            nullable: true,
        }
    }

    fn demand(columns: &[(&str, ValueType)]) -> MarkerDemand {
        let columns = columns
            .iter()
            .map(|(name, kind)| ComparisonColumn { name: Identifier::column(name).unwrap(), kind: *kind });
        MarkerDemand {
            consumer: "points-award".into(),
            key_characters_max: 128,
            columns: columns.collect(),
            fingerprint: false,
            comparison_version: 1,
        }
    }

    fn findings(demand: &MarkerDemand, shape: &TableShape, typing: Typing) -> Vec<(Severity, String)> {
        let found = demand.findings(&Identifier::table("consumed_operation").unwrap(), Some(shape), typing);
        found.into_iter().map(|finding| (finding.severity, finding.text)).collect()
    }

    fn verdict(kind: ValueType, column: Column, typing: Typing) -> Option<Severity> {
        let mut shape = TableShape::default();
        shape.others.insert("amount".into(), column);
        findings(&demand(&[("Amount", kind)]), &shape, typing).first().map(|(severity, _)| *severity)
    }

    #[test]
    fn columns_that_would_change_a_value_are_found() {
        use Severity::{Error, Warning};
        use Typing::{Affinity, Declared};
        for (kind, column_kind, declared, typing, expected) in [
            (ValueType::Integer, ColumnKind::Integer, "bigint", Declared, None),
            (ValueType::Integer, ColumnKind::Float, "double", Declared, Some(Error)),
            (ValueType::Integer, ColumnKind::DateTime, "datetime", Declared, Some(Error)),
            (ValueType::Decimal, ColumnKind::Integer, "bigint", Declared, Some(Warning)),
            (ValueType::Decimal, ColumnKind::Text, "TEXT", Affinity, None),
            (ValueType::String, ColumnKind::Text, "varchar(255)", Declared, None),
            (ValueType::String, ColumnKind::Integer, "INT", Affinity, Some(Error)),
            (ValueType::Boolean, ColumnKind::Decimal, "BOOLEAN", Affinity, None),
            (ValueType::Json, ColumnKind::Json, "json", Declared, Some(Error)),
            (ValueType::Json, ColumnKind::Text, "longtext", Declared, None),
            (ValueType::Timestamp, ColumnKind::DateTime, "datetime(3)", Declared, Some(Warning)),
            (ValueType::Timestamp, ColumnKind::DateTime, "timestamp(6)", Declared, Some(Error)),
            (ValueType::Timestamp, ColumnKind::Other, "date", Declared, Some(Error)),
            (ValueType::Timestamp, ColumnKind::DateTime, "DATETIME", Affinity, None),
            (ValueType::Timestamp, ColumnKind::Text, "TEXT", Affinity, None),
        ] {
            let found = verdict(kind, column("amount", column_kind, declared), typing);

            assert_eq!(found, expected, "{kind} in {declared}");
        }
        let exact = Column { fraction: Some(6), ..column("amount", ColumnKind::DateTime, "datetime(6)") };
        assert_eq!(verdict(ValueType::Timestamp, exact, Typing::Declared), None);
    }

    #[test]
    fn columns_that_are_not_there_are_named() {
        let demand = MarkerDemand {
            fingerprint: true,
            comparison_version: 2,
            ..demand(&[("currency", ValueType::String)])
        };

        let found = findings(&demand, &TableShape::default(), Typing::Declared);

        assert_eq!(
            found.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(),
            [
                "lacks currency, which points-award compares",
                "lacks fingerprint, by which it compares",
                "lacks comparison_version, which says what a marker was compared by",
            ]
        );
    }

    #[test]
    fn keys_need_room() {
        let mut shape = TableShape::default();
        let short = |length| Column { length: Some(length), ..column("k", ColumnKind::Text, "varchar") };
        shape.columns.insert("consumer_name".into(), short(11));
        shape.columns.insert("business_key".into(), short(64));

        let found = findings(&demand(&[]), &shape, Typing::Declared);

        assert_eq!(
            found.iter().map(|(severity, _)| *severity).collect::<Vec<_>>(),
            [Severity::Error, Severity::Warning]
        );
        assert!(found[1].1.contains("holds 64 and keys may have 128"), "{found:?}");
    }
}
