//! What a run came to, as a table and as JSON.

use serde::Serialize;

use crate::output::{self, Table};

use super::Compared;
use super::audit::Found;
use super::text::{Language, Words};

/// The results of a run.
pub struct Report<'a> {
    /// The scenarios, in the order they are told.
    pub compared: &'a [Compared],
}

#[derive(Serialize)]
struct Document {
    scenarios: Vec<Entry>,
    passed: bool,
}

#[derive(Serialize)]
struct Entry {
    id: &'static str,
    backend: &'static str,
    naive: Found,
    consign: Found,
}

impl Report<'_> {
    /// True when every naive side shows its defect and no side with consign has one.
    pub fn passed(&self) -> bool {
        self.compared.iter().all(Compared::passed)
    }

    /// Prints one JSON document.
    pub fn print_json(&self) -> anyhow::Result<()> {
        let entry = |compared: &Compared| Entry {
            id: compared.id.name(),
            backend: compared.backend.name(),
            naive: compared.naive.found,
            consign: compared.consign.found,
        };
        let document =
            Document { scenarios: self.compared.iter().map(entry).collect(), passed: self.passed() };
        Ok(output::print_json(&document)?)
    }

    /// Prints a table, and what it means.
    pub fn print_table(&self, language: Language) -> anyhow::Result<()> {
        let words = language.words();
        let headings = [words.scenario, words.backend, words.window, words.naive, words.consign];
        let mut table = Table::new(headings.map(str::to_uppercase));
        for compared in self.compared {
            let [naive, consign] = [&compared.naive, &compared.consign].map(|ran| told(ran.found, words));
            let title = language.story(compared.id).title;
            table.row([compared.id.name(), compared.backend.name(), title, &naive, &consign]);
        }
        output::print(&table)?;
        let verdict = if self.passed() { words.passed } else { words.failed };
        Ok(output::print(format!("{verdict}\n"))?)
    }
}

/// What was found and is not zero.
fn told(found: Found, words: &Words) -> String {
    let figures = [(words.lost, found.lost), (words.doubled, found.doubled), (words.wrong, found.wrong)];
    let defects = figures.iter().filter(|(_, count)| *count != 0);
    let defects: Vec<String> = defects.map(|(word, count)| format!("{word} {count}")).collect();
    if defects.is_empty() { "0 0 0".into() } else { defects.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::super::place::Backend;
    use super::super::rig::Ran;
    use super::super::scenario::Window;
    use super::*;

    fn compared(naive: Found, consign: Found) -> Compared {
        let [naive, consign] = [naive, consign].map(|found| Ran { found, moments: Vec::new() });
        Compared { id: Window::CommitThenSend, backend: Backend::Embedded, naive, consign }
    }

    #[test]
    fn a_run_passes_only_when_the_naive_side_fails_and_the_other_does_not() {
        let (clean, lost) = (Found::default(), Found { lost: 1, ..Found::default() });
        let wrong = Found { wrong: 1, ..Found::default() };
        let passed = |naive, consign| Report { compared: &[compared(naive, consign)] }.passed();

        assert!(passed(lost, clean));
        assert!(!passed(clean, clean), "the naive side did not show its defect");
        assert!(!passed(lost, wrong), "the side with consign has a defect");
    }
}
