//! Exit codes: 0 fine, 1 failed, 2 usage or config, 3 findings.

use std::process::ExitCode;

use crate::config::ConfigError;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It did what it was asked.
    Fine,
    /// It could not do it.
    Failed,
    /// The command line or the config cannot be used.
    Usage,
    /// It looked, and found something that needs attention.
    Findings,
}

impl Exit {
    /// The exit code of a failure: a config that cannot be used is a usage error wherever it surfaces.
    pub fn of_error(error: &anyhow::Error) -> Self {
        if error.chain().any(<dyn std::error::Error>::is::<ConfigError>) { Self::Usage } else { Self::Failed }
    }

    /// The process's exit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Findings => 3,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_config_error_is_a_usage_error_under_any_context() {
        let config: anyhow::Result<()> = Err(ConfigError::new(Vec::new()).into());
        let wrapped = config.context("starting the relay").unwrap_err();

        assert_eq!(Exit::of_error(&wrapped), Exit::Usage);
        assert_eq!(Exit::of_error(&anyhow::anyhow!("the broker is away")), Exit::Failed);
    }

    #[test]
    fn the_codes_are_the_documented_ones() {
        let codes = [Exit::Fine, Exit::Failed, Exit::Usage, Exit::Findings].map(Exit::code);

        assert_eq!(codes, [0, 1, 2, 3]);
    }
}
