//! Everything in the stores that reads what people or databases wrote.

use consign_core::event::Headers;
use seeded_fuzz::run;

use crate::mapping::Identifier;
use crate::{diagnostic, headers};

/// A name that is accepted stays inside its quotes, whatever follows it in the statement.
#[test]
fn sql_identifiers() {
    let words = ["orders", ".", "`", "\"", "``", "outbox_event", " ", ";", "--", "\\", "$", "_", "1"];
    run("sql_identifiers", |source| {
        let text = source.text(6, &words);
        let column = Identifier::column(&text);
        let Ok(name) = Identifier::table(&text) else {
            assert!(column.is_err(), "{text:?} is no table, so no column either");
            return;
        };
        assert_eq!(column.is_ok(), name.schema().is_none());
        for quote in ['`', '"'] {
            let quoted = name.quoted(quote);
            let mut parts = quoted.split('.');
            let mut next = || parts.next().and_then(|part| part.strip_prefix(quote)?.strip_suffix(quote));
            if let Some(schema) = name.schema() {
                assert_eq!(next(), Some(schema));
            }
            assert_eq!(next(), Some(name.local()));
            assert_eq!(next(), None);
            let inside = [name.schema().unwrap_or_default(), name.local()].concat();
            assert!(!inside.contains([quote, '\\', '.', '\0', '\n']), "{quoted:?} ends early");
        }
    });
}

/// Headers come back as they were written; whatever a column holds is read or refused.
#[test]
fn stored_headers() {
    run("stored_headers", |source| {
        let mut written: Headers = (0..source.below(5))
            .map(|_| (source.text(4, &["traceparent", "a"]), source.text(10, &["00-ab", "\"", "\\"])))
            .collect();
        match headers::write(&written) {
            Ok(Some(text)) => {
                let mut read = headers::read(text.as_bytes()).expect("what was written can be read");
                read.sort();
                written.sort();
                assert_eq!(read, written);
                let _ = headers::read(&source.mutated(text.as_bytes()));
            }
            Ok(None) => assert!(written.is_empty()),
            Err(name) => assert!(written.iter().filter(|(written, _)| *written == name).count() > 1),
        }
    });
}

/// A text that is cut for its column is a beginning of it, whole in its characters.
#[test]
fn cut_diagnostics() {
    run("cut_diagnostics", |source| {
        let text = source.text(40, &["error", "中文"]);
        let most = source.length(60);
        let cut = diagnostic::cut(&text, most);
        assert!(cut.len() <= most && text.starts_with(cut), "{text:?} is cut to {cut:?}");
        assert!(cut.len() == text.len() || cut.len() + 4 > most, "{text:?} is cut too short: {cut:?}");
    });
}
