//! What a declared consumer does with a message: bindings, key, comparison, statements.

use std::collections::BTreeMap;

use consign_core::declared::{
    Binding, BindingSource, Bindings, ComparedBinding, DeclaredComparison, DeclaredConsumer, DeclaredGuard,
    DeclaredRule, EarlierDeclared, InvalidComparison, InvalidConsumer, InvalidGuard, InvalidHistory,
    KeyTemplate, Statement,
};
use consign_core::value::ValueType;

use crate::config::checker::{Checker, Named};
use crate::config::raw::{RawBinding, RawCompare, RawConsumer, RawHistory, RawStatement};
use crate::config::store::{INBOX_COLUMNS, InboxConfig};

/// More versions than anybody will deploy; they are kept in a column of 32 bits.
const VERSION_MAX: u32 = 1_000_000;

/// Checks what the consumer does with a message, and puts it together.
pub fn declared(
    checker: &mut Checker<'_>,
    key: &str,
    name: Option<String>,
    raw: RawConsumer,
    guard: Option<DeclaredGuard>,
    inbox: &InboxConfig,
) -> Option<DeclaredConsumer> {
    let bindings = bindings(checker, &format!("{key}.bind"), raw.bind);
    let comparison = comparison(checker, key, raw.compare, raw.fingerprint, inbox);
    let history = history(checker, key, raw.compare_version, raw.compare_history, inbox);
    let template_key = format!("{key}.key");
    let template = template(checker, &template_key, raw.key, "key = \"order:{order_id}:paid\"");
    let bindings = bindings?;
    let statements = statements(checker, key, raw.statement, raw.statements.as_deref(), &bindings);
    let comparison_key = match comparison {
        Some(DeclaredComparison::Fingerprint(_)) => format!("{key}.fingerprint"),
        Some(DeclaredComparison::Columns(_)) | None => format!("{key}.compare"),
    };
    match DeclaredConsumer::new(name?, template?, bindings, comparison?, statements) {
        Ok(consumer) => versioned(checker, key, consumer, history?, guard),
        Err(problems) => {
            for problem in problems {
                match problem {
                    InvalidConsumer::Key(problem) => checker.refuse(&template_key, problem),
                    InvalidConsumer::Comparison(problem) => checker.refuse(&comparison_key, problem),
                }
            }
            None
        }
    }
}

/// A key template that must be there.
pub fn template(
    checker: &mut Checker<'_>,
    key: &str,
    text: Option<String>,
    example: &str,
) -> Option<KeyTemplate> {
    match KeyTemplate::parse(&checker.required(key, text, example)?) {
        Ok(template) => Some(template),
        Err(problem) => {
            checker.refuse(key, problem);
            None
        }
    }
}

/// The comparison's version and what the versions before it compared.
type History = (u32, Vec<EarlierDeclared>);

fn history(
    checker: &mut Checker<'_>,
    key: &str,
    version: u64,
    raw: Vec<RawHistory>,
    inbox: &InboxConfig,
) -> Option<History> {
    let version = checker.within(&format!("{key}.compare_version"), version, 1..=VERSION_MAX);
    let count = raw.len();
    let mut earlier = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let key = format!("{key}.compare_history[{index}]");
        let version_key = format!("{key}.version");
        if raw.version.is_none() {
            checker.refuse(&version_key, "is missing: write the version whose comparison this was");
        }
        let version = raw.version.map(|version| checker.within(&version_key, version, 0..=VERSION_MAX));
        let comparison = comparison(checker, &key, raw.compare, raw.fingerprint, inbox);
        let (Some(version), Some(comparison)) = (version, comparison) else { continue };
        earlier.push(EarlierDeclared { version, comparison });
    }
    (earlier.len() == count).then_some((version, earlier))
}

fn versioned(
    checker: &mut Checker<'_>,
    key: &str,
    consumer: DeclaredConsumer,
    (version, earlier): History,
    guard: Option<DeclaredGuard>,
) -> Option<DeclaredConsumer> {
    let consumer = match consumer.with_history(version, earlier) {
        Ok(consumer) => consumer,
        Err((at, problem)) => {
            let key = format!("{key}.compare_history[{at}]");
            let part = match problem {
                InvalidHistory::Comparison(InvalidComparison::EmptyFingerprint) => "fingerprint",
                InvalidHistory::Comparison(_) if checker.has(&format!("{key}.fingerprint")) => "fingerprint",
                InvalidHistory::Comparison(_) => "compare",
                InvalidHistory::Zero | InvalidHistory::NotEarlier { .. } | InvalidHistory::Repeated(_) => {
                    "version"
                }
            };
            checker.refuse(&format!("{key}.{part}"), problem);
            return None;
        }
    };
    let Some(guard) = guard else { return Some(consumer) };
    let binding_key = match guard.rule {
        DeclaredRule::Transition { .. } => "state",
        DeclaredRule::ApplyIfNewer(_) | DeclaredRule::Sequential { .. } => "version",
    };
    match consumer.with_guard(guard) {
        Ok(consumer) => Some(consumer),
        Err(problem) => {
            let part = if matches!(problem, InvalidGuard::Aggregate(_)) { "aggregate" } else { binding_key };
            checker.refuse(&format!("{key}.guard.{part}"), problem);
            None
        }
    }
}

/// The bindings; `None` when one was refused, so that the names it would have given cause no further reports.
fn bindings(checker: &mut Checker<'_>, key: &str, raw: BTreeMap<String, RawBinding>) -> Option<Bindings> {
    let types = [
        ("integer", ValueType::Integer),
        ("decimal", ValueType::Decimal),
        ("string", ValueType::String),
        ("boolean", ValueType::Boolean),
        ("json", ValueType::Json),
        ("timestamp", ValueType::Timestamp),
    ];
    let count = raw.len();
    let mut bindings = BTreeMap::new();
    for (name, raw) in raw {
        let key = format!("{key}.{name}");
        let type_key = format!("{key}.type");
        let word = checker.required(
            &type_key,
            raw.kind,
            "type = \"integer\", \"decimal\", \"string\", \"boolean\", \"json\" or \"timestamp\"",
        );
        let value_type = word.and_then(|word| checker.choice(&type_key, &word, &types));
        let source = match (raw.pointer, raw.header) {
            (Some(pointer), None) => Some(BindingSource::Pointer(pointer)),
            (None, Some(header)) => Some(BindingSource::Header(header)),
            (Some(_), Some(_)) => {
                checker.refuse(&key, "has a pointer and a header: keep one of them");
                None
            }
            (None, None) => {
                checker.refuse(&key, "has no source: add pointer = \"/field\", or header = \"name\"");
                None
            }
        };
        let (Some(value_type), Some(source)) = (value_type, source) else { continue };
        let binding = Binding { source, value_type, required: raw.required };
        match binding.check(&name) {
            Ok(()) => {
                bindings.insert(name, binding);
            }
            Err(problem) => checker.refuse(&key, problem),
        }
    }
    if bindings.len() < count { None } else { Bindings::new(bindings).ok() }
}

fn comparison(
    checker: &mut Checker<'_>,
    key: &str,
    compare: Option<RawCompare>,
    fingerprint: Option<Vec<String>>,
    inbox: &InboxConfig,
) -> Option<DeclaredComparison> {
    let compare_key = format!("{key}.compare");
    match (compare, fingerprint) {
        (Some(_), Some(_)) => {
            checker.refuse(&format!("{key}.fingerprint"), "stands beside compare: keep one of them");
            None
        }
        (None, None) => {
            checker.refuse(
                &compare_key,
                "is missing: list the fields that must be equal for a repeat, compare = [] when the key says it all, \
                 or use fingerprint",
            );
            None
        }
        (None, Some(names)) => Some(DeclaredComparison::Fingerprint(names)),
        (Some(compare), None) => {
            let columns = match compare {
                RawCompare::Names(names) => names
                    .into_iter()
                    .map(|name| ComparedBinding { column: name.clone(), binding: name })
                    .collect(),
                RawCompare::Columns(columns) => columns
                    .into_iter()
                    .map(|(column, binding)| ComparedBinding { column, binding })
                    .collect::<Vec<_>>(),
            };
            for compared in &columns {
                check_column(checker, &compare_key, &compared.column, inbox);
            }
            Some(DeclaredComparison::Columns(columns))
        }
    }
}

fn check_column(checker: &mut Checker<'_>, key: &str, column: &str, inbox: &InboxConfig) {
    checker.identifier(key, column, Named::Column);
    let taken = INBOX_COLUMNS.iter().any(|own| inbox.actual(own).eq_ignore_ascii_case(column));
    if taken {
        let text = format!(
            "{column:?} is a column of {} that consign writes itself: compare another one",
            inbox.table
        );
        checker.refuse(key, text);
    }
}

fn statements(
    checker: &mut Checker<'_>,
    key: &str,
    raw: Vec<RawStatement>,
    word: Option<&str>,
    bindings: &Bindings,
) -> Vec<Statement> {
    let word_key = format!("{key}.statements");
    match word {
        None if raw.is_empty() => checker.refuse(
            &word_key,
            "the consumer would do nothing: add [[consumer.statement]], or write statements = \"none\" when the marker \
             alone is the effect",
        ),
        Some("none") if !raw.is_empty() => {
            checker.refuse(&word_key, "says \"none\" although there are statements: remove one of them");
        }
        Some(word) if word != "none" => {
            checker.refuse(&word_key, format!("{word:?} is not known: use \"none\", or [[consumer.statement]]"));
        }
        Some(_) | None => {}
    }
    let mut statements = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let key = format!("{key}.statement[{index}]");
        let rows = match raw.expect_rows.0.parse() {
            Ok(rows) => rows,
            Err(problem) => {
                checker.refuse(&format!("{key}.expect_rows"), problem);
                continue;
            }
        };
        let sql_key = format!("{key}.sql");
        let Some(sql) = checker.required(&sql_key, raw.sql, "sql = \"UPDATE …\"") else { continue };
        match Statement::parse(&sql, bindings.known_names(), rows) {
            Ok(statement) => statements.push(statement),
            Err(problem) => checker.refuse(&sql_key, problem),
        }
    }
    statements
}
