//! What the lab says, in each language: one file per language, and nothing in it can be missing.

mod en;
mod zh;

use super::record::{Actor, What};
use super::scenario::Window;

/// A language of tables and reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Language {
    /// English.
    #[default]
    En,
    /// Chinese.
    Zh,
}

/// A scenario, told.
#[derive(Clone, Copy, Debug)]
pub struct Story {
    /// The window in a few words.
    pub title: &'static str,
    /// What goes wrong, and why.
    pub window: &'static str,
    /// What the naive side does.
    pub naive: &'static str,
    /// What consign does instead.
    pub consign: &'static str,
    /// Where the window exists, and why there.
    pub backends: &'static str,
}

/// Words around the scenarios.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// For `lang` in HTML.
    pub code: &'static str,
    /// The report's heading.
    pub heading: &'static str,
    /// What the report is.
    pub introduction: &'static str,
    /// All is as it should be.
    pub passed: &'static str,
    /// It is not.
    pub failed: &'static str,
    /// Heading: the scenario.
    pub scenario: &'static str,
    /// Heading: what it is about.
    pub window: &'static str,
    /// Heading: the backend.
    pub backend: &'static str,
    /// The naive side.
    pub naive: &'static str,
    /// The side with consign.
    pub consign: &'static str,
    /// Facts that arrived nowhere.
    pub lost: &'static str,
    /// Facts that arrived more than once.
    pub doubled: &'static str,
    /// Facts that never were, and figures that do not fit.
    pub wrong: &'static str,
    /// In front of one order's number.
    pub order: &'static str,
    /// In front of several orders' numbers.
    pub orders: &'static str,
    /// Behind the number of steps that a picture leaves out.
    pub left_out: &'static str,
    /// How the figures are found.
    pub counted: &'static str,
}

impl Language {
    /// The words.
    pub const fn words(self) -> &'static Words {
        match self {
            Self::En => &en::WORDS,
            Self::Zh => &zh::WORDS,
        }
    }

    /// A scenario's story.
    pub const fn story(self, id: Window) -> Story {
        match self {
            Self::En => en::story(id),
            Self::Zh => zh::story(id),
        }
    }

    /// A name in a picture.
    pub const fn actor(self, actor: Actor) -> &'static str {
        match self {
            Self::En => en::actor(actor),
            Self::Zh => zh::actor(actor),
        }
    }

    /// A step in a picture.
    pub const fn what(self, what: What) -> &'static str {
        match self {
            Self::En => en::what(what),
            Self::Zh => zh::what(what),
        }
    }
}
