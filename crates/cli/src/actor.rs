//! Who decides something, and why: both end up in `consign_audit`.

use consign_store::record::Audit;

/// The audit's part of a command line.
#[derive(Clone, Debug, clap::Args)]
pub struct ActorArguments {
    /// Who decides; written into the audit [default: USER or LOGNAME].
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    actor: Option<String>,
    /// Why; written into the audit.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

impl ActorArguments {
    /// What the audit says of every action of this command.
    pub fn audit(&self) -> Audit {
        let from = |variable: &str| std::env::var(variable).ok();
        Audit { actor: actor(self.actor.clone(), from), detail: self.note.clone() }
    }
}

/// The name that was given, or the one of the environment.
fn actor(given: Option<String>, environment: impl Fn(&str) -> Option<String>) -> String {
    let known =
        || ["USER", "LOGNAME"].into_iter().find_map(|name| environment(name).filter(|name| !name.is_empty()));
    given.or_else(known).unwrap_or_else(|| "unknown".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_actor_is_the_given_one_or_the_environments_or_unknown() {
        let none = |_: &str| None;
        let logname = |name: &str| match name {
            "USER" => Some(String::new()),
            "LOGNAME" => Some("mei".to_owned()),
            _ => None,
        };

        assert_eq!(actor(Some("ana".into()), logname), "ana");
        assert_eq!(actor(None, logname), "mei");
        assert_eq!(actor(None, none), "unknown");
    }
}
