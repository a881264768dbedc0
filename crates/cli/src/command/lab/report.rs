//! What a run came to, as a table and as JSON.

use serde::Serialize;

use crate::output::{self, Table};

use super::Compared;
use super::audit::Found;

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
        let document = Document { scenarios: self.compared.iter().map(entry).collect(), passed: self.passed() };
        Ok(output::print_json(&document)?)
    }

    /// Prints a table.
    pub fn print_table(&self) -> anyhow::Result<()> {
        let mut table = Table::new(["SCENARIO", "BACKEND", "NAIVE", "CONSIGN"]);
        for compared in self.compared {
            let cells = [&compared.naive, &compared.consign].map(|ran| told(ran.found));
            table.row([compared.id.name(), compared.backend.name(), &cells[0], &cells[1]]);
        }
        Ok(output::print(&table)?)
    }
}

fn told(found: Found) -> String {
    format!("lost {} doubled {} wrong {}", found.lost, found.doubled, found.wrong)
}
