//! Declared guards: which aggregate an operation belongs to, and which step it takes there.

use std::sync::Arc;

use crate::declared::AGGREGATE_VERSION_HEADER;
use crate::declared::binding::{Bindings, Fields};
use crate::declared::key::{InvalidKey, KeyRefusal, KeyTemplate};
use crate::guard::{Guard, Step, Transitions};
use crate::value::{Value, ValueType};

/// How many characters an aggregate may have: the contract's `aggregate VARCHAR(255)`.
const AGGREGATE_CHARACTERS_MAX: usize = 255;

/// The guard of a declared consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredGuard {
    /// How the aggregate is named, under the same rules as a business key.
    pub aggregate: KeyTemplate,
    /// What is asked of each operation.
    pub rule: DeclaredRule,
}

/// What a guard asks of each operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeclaredRule {
    /// Its version is newer than the applied one.
    ApplyIfNewer(VersionSource),
    /// Its version is the one after the applied one.
    Sequential {
        /// Where its version is.
        version: VersionSource,
        /// The version of an aggregate's first step.
        first: i64,
    },
    /// Its state may follow the applied one.
    Transition {
        /// The binding that holds its state.
        state: String,
        /// Which states may follow each other.
        allowed: Arc<Transitions>,
    },
}

/// Where the aggregate's version is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionSource {
    /// In the header `consign-aggregate-version`.
    Header,
    /// In the binding of that name.
    Binding(String),
}

/// Why a guard cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGuard {
    /// The aggregate does not fit the bindings.
    #[error(transparent)]
    Aggregate(#[from] InvalidKey),
    /// A name is not bound.
    #[error("{name:?} is not bound: {fix}")]
    UnknownName {
        /// The name.
        name: String,
        /// The nearest known name, or how to add one.
        fix: String,
    },
    /// The binding has a type that the guard cannot use.
    #[error("{name:?} has type {found}, and the guard needs {wanted}: bind another field")]
    Type {
        /// The binding.
        name: String,
        /// The type it has.
        found: ValueType,
        /// The type it must have.
        wanted: ValueType,
    },
    /// The value may be absent.
    #[error(
        "{name:?} may be absent, and a guard needs it in every message: bind a payload field without required = false"
    )]
    Optional {
        /// The binding.
        name: String,
    },
}

/// Why a message cannot be guarded. Payload content is never part of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuardRefusal {
    /// The values give no aggregate.
    #[error("the guard's aggregate cannot be formed: {0}")]
    Aggregate(#[from] KeyRefusal),
    /// The header is missing.
    #[error(
        "header {AGGREGATE_VERSION_HEADER} is missing, and the guard needs it: let the producer set it, or bind the \
         version to a payload field"
    )]
    NoVersion,
    /// The version does not fit its column.
    #[error("{name} does not fit into 64 bits, and the guard needs it as a version")]
    Version {
        /// The binding.
        name: String,
    },
}

impl DeclaredGuard {
    /// Checks the guard against the bindings.
    ///
    /// # Errors
    /// The aggregate does not fit, or a binding is unknown, optional or of the wrong type.
    pub fn check(&self, bindings: &Bindings) -> Result<(), InvalidGuard> {
        self.aggregate.check(bindings)?;
        match &self.rule {
            DeclaredRule::ApplyIfNewer(version) | DeclaredRule::Sequential { version, .. } => match version {
                VersionSource::Header => Ok(()),
                VersionSource::Binding(name) => check_binding(name, ValueType::Integer, bindings),
            },
            DeclaredRule::Transition { state, .. } => check_binding(state, ValueType::String, bindings),
        }
    }

    /// The guard of one message, whose version header was read before.
    pub(super) fn of(&self, fields: &Fields, header_version: Option<i64>) -> Result<Guard, GuardRefusal> {
        let version = |source: &VersionSource| match source {
            VersionSource::Header => header_version.ok_or(GuardRefusal::NoVersion),
            VersionSource::Binding(name) => match fields.get(name) {
                Some(Value::Integer(number)) => i64::try_from(*number).ok(),
                _ => None,
            }
            .ok_or_else(|| GuardRefusal::Version { name: name.clone() }),
        };
        let step = match &self.rule {
            DeclaredRule::ApplyIfNewer(source) => Step::ApplyIfNewer { version: version(source)? },
            DeclaredRule::Sequential { version: source, first } => {
                Step::Sequential { version: version(source)?, first: *first }
            }
            DeclaredRule::Transition { state, allowed } => Step::Transition {
                to: fields.get(state).map(Value::text).unwrap_or_default(),
                allowed: Arc::clone(allowed),
            },
        };
        Ok(Guard { aggregate: self.aggregate.render(fields, AGGREGATE_CHARACTERS_MAX)?, step })
    }
}

fn check_binding(name: &str, wanted: ValueType, bindings: &Bindings) -> Result<(), InvalidGuard> {
    if !bindings.known_names().any(|known| known == name) {
        return Err(InvalidGuard::UnknownName { name: name.into(), fix: bindings.fix_for(name) });
    }
    // Built-in names have no binding: they hold text, and may be absent.
    let binding = bindings.get(name);
    let found = binding.map_or(ValueType::String, |binding| binding.value_type);
    if found != wanted {
        return Err(InvalidGuard::Type { name: name.into(), found, wanted });
    }
    if !binding.is_some_and(|binding| binding.required) {
        return Err(InvalidGuard::Optional { name: name.into() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::declared::binding::{Binding, BindingSource};

    fn guard(rule: DeclaredRule) -> DeclaredGuard {
        DeclaredGuard { aggregate: KeyTemplate::parse("order:{order_id}").unwrap(), rule }
    }

    fn newer(binding: &str) -> DeclaredGuard {
        guard(DeclaredRule::ApplyIfNewer(VersionSource::Binding(binding.into())))
    }

    fn transition(binding: &str) -> DeclaredGuard {
        let allowed = Arc::new(Transitions::parse(["->NEW", "NEW->PAID"]).unwrap());
        guard(DeclaredRule::Transition { state: binding.into(), allowed })
    }

    fn bindings() -> Bindings {
        let bound = |name: &str, value_type, required| {
            let source = BindingSource::Pointer(format!("/{name}"));
            (name.to_owned(), Binding { source, value_type, required })
        };
        Bindings::new(BTreeMap::from([
            bound("order_id", ValueType::Integer, true),
            bound("version", ValueType::Integer, true),
            bound("state", ValueType::String, true),
            bound("maybe", ValueType::Integer, false),
        ]))
        .unwrap()
    }

    fn fields(version: Value) -> Fields {
        Fields::from([
            ("order_id".to_owned(), Value::Integer(42)),
            ("version".to_owned(), version),
            ("state".to_owned(), Value::Text("PAID".into())),
        ])
    }

    #[test]
    fn guards_that_do_not_fit_the_bindings_are_refused_with_the_fix() {
        for (guard, problem) in [
            (newer("vresion"), "\"vresion\" is not bound: did you mean \"version\"?"),
            (
                newer("state"),
                "\"state\" has type a string, and the guard needs an integer: bind another field",
            ),
            (
                transition("version"),
                "\"version\" has type an integer, and the guard needs a string: bind another field",
            ),
            (
                newer("maybe"),
                "\"maybe\" may be absent, and a guard needs it in every message: bind a payload field without required = false",
            ),
            (
                transition("event_type"),
                "\"event_type\" may be absent, and a guard needs it in every message: bind a payload field without required = false",
            ),
            (
                DeclaredGuard { aggregate: KeyTemplate::parse("{maybe}").unwrap(), ..newer("version") },
                "\"{maybe}\" uses \"maybe\", which is optional: a key needs it in every message, remove required = false",
            ),
        ] {
            assert_eq!(guard.check(&bindings()).unwrap_err().to_string(), problem);
        }
        assert_eq!(newer("version").check(&bindings()), Ok(()));
        assert_eq!(transition("state").check(&bindings()), Ok(()));
    }

    #[test]
    fn a_message_s_values_name_the_aggregate_and_the_step() {
        let version = VersionSource::Binding("version".into());
        let sequential = guard(DeclaredRule::Sequential { version, first: 0 });
        let fields = fields(Value::Integer(7));

        assert_eq!(newer("version").of(&fields, None).unwrap().step, Step::ApplyIfNewer { version: 7 });
        assert_eq!(sequential.of(&fields, None).unwrap().step, Step::Sequential { version: 7, first: 0 });
        let moved = transition("state").of(&fields, None).unwrap();
        assert_eq!(moved.aggregate, "order:42");
        assert!(matches!(moved.step, Step::Transition { to, .. } if to == "PAID"));
    }

    #[test]
    fn the_version_header_is_the_version_and_a_message_without_it_is_refused() {
        let guard = guard(DeclaredRule::ApplyIfNewer(VersionSource::Header));
        let fields = fields(Value::Null);

        assert_eq!(guard.of(&fields, Some(3)).unwrap().step, Step::ApplyIfNewer { version: 3 });
        assert_eq!(guard.of(&fields, None), Err(GuardRefusal::NoVersion));
    }

    #[test]
    fn versions_and_aggregates_that_do_not_fit_are_refused_and_never_cut() {
        let beyond = fields(Value::Integer(i128::from(i64::MAX) + 1));
        let mut long = fields(Value::Integer(1));
        long.insert("order_id".into(), Value::Text("x".repeat(250)));

        assert_eq!(newer("version").of(&beyond, None), Err(GuardRefusal::Version { name: "version".into() }));
        assert_eq!(
            newer("version").of(&long, None),
            Err(KeyRefusal::TooLong { characters: 256, limit: 255 }.into())
        );
    }
}
