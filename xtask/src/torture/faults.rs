//! The fault catalogue, which is the table in `docs/proof/faults.md`: read, checked against the code, and printed.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

const CATALOGUE: &str = include_str!("../../../docs/proof/faults.md");
/// Where the torture lists its faults.
const FAULTS: &str = "crates/torture/src/fault.rs";
/// How many faults there are of each kind.
const KINDS: [(char, usize); 4] = [('F', 16), ('D', 22), ('B', 29), ('E', 18)];

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    number: String,
    what: String,
    automated: Automated,
    /// `torture:NAME`, or `FILE::TEST`.
    by: Vec<String>,
    missing: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Automated {
    Yes,
    Part,
    No,
}

impl Automated {
    fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Part => "part",
            Self::No => "no",
        }
    }
}

/// Runs `cargo xtask torture --list`: the table, checked.
pub fn list(root: &Path, as_json: bool) -> Result<()> {
    let faults = read(CATALOGUE)?;
    let findings = findings(&faults, |file| std::fs::read_to_string(root.join(file)).ok());
    ensure!(findings.is_empty(), "docs/proof/faults.md:\n{}", findings.join("\n"));
    if as_json {
        println!("{}", document(&faults));
        return Ok(());
    }
    for fault in &faults {
        println!("{:<4} {:<5} {}", fault.number, fault.automated.word(), fault.what);
        for proof in &fault.by {
            println!("           by {proof}");
        }
        if !fault.missing.is_empty() {
            println!("           missing: {}", fault.missing);
        }
    }
    let count = |automated| faults.iter().filter(|fault| fault.automated == automated).count();
    println!(
        "{} faults: {} automated, {} in part, {} not",
        faults.len(),
        count(Automated::Yes),
        count(Automated::Part),
        count(Automated::No)
    );
    Ok(())
}

fn document(faults: &[Fault]) -> Value {
    let rows = faults.iter().map(|fault| {
        json!({
            "number": fault.number, "fault": fault.what, "automated": fault.automated.word(), "by": fault.by,
            "missing": fault.missing,
        })
    });
    json!({ "faults": rows.collect::<Vec<_>>() })
}

fn read(text: &str) -> Result<Vec<Fault>> {
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| #"));
    rows.map(row).collect()
}

fn row(line: &str) -> Result<Fault> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [number, what, automated, by, missing] = cells.as_slice() else {
        bail!("{line:?} has {} cells instead of 5", cells.len());
    };
    let automated = [Automated::Yes, Automated::Part, Automated::No]
        .into_iter()
        .find(|known| known.word() == *automated)
        .with_context(|| format!("{number}: {automated:?} is none of yes, part and no"))?;
    Ok(Fault {
        number: (*number).to_owned(),
        what: (*what).to_owned(),
        automated,
        by: by.split_whitespace().map(|proof| proof.trim_matches('`').to_owned()).collect(),
        missing: (*missing).to_owned(),
    })
}

/// What is wrong with the table, given how to read a file of the repository.
fn findings(faults: &[Fault], file: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let wanted: Vec<String> = KINDS
        .iter()
        .flat_map(|&(kind, last)| (1..=last).map(move |number| format!("{kind}{number}")))
        .collect();
    let found: Vec<&str> = faults.iter().map(|fault| fault.number.as_str()).collect();
    let mut findings = Vec::new();
    if found != wanted {
        findings.push(format!("the numbers are {found:?} instead of {wanted:?}"));
    }
    let torture = file(FAULTS).unwrap_or_default();
    for fault in faults {
        let number = &fault.number;
        if (fault.automated == Automated::No) != fault.by.is_empty() {
            findings.push(format!("{number}: what is automated names its tests, and nothing else does"));
        }
        if (fault.automated == Automated::Yes) != fault.missing.is_empty() {
            findings
                .push(format!("{number}: what is not automated says what is missing, and nothing else does"));
        }
        for proof in &fault.by {
            let exists = match (proof.strip_prefix("torture:"), proof.split_once("::")) {
                (Some(name), _) => {
                    torture.contains(&format!("point(\"{name}\")"))
                        || torture.contains(&format!("entry(\"{name}\""))
                }
                (None, Some((path, test))) => file(&format!("crates/{path}")).is_some_and(|text| {
                    ["(", "<"].iter().any(|next| text.contains(&format!("fn {test}{next}")))
                }),
                (None, None) => false,
            };
            if !exists {
                findings.push(format!("{number}: there is no {proof}"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn every_fault_is_listed_once_and_every_test_it_names_exists() {
        let faults = read(CATALOGUE).unwrap();

        let findings = findings(&faults, |file| std::fs::read_to_string(workspace::root().join(file)).ok());

        assert_eq!(faults.len(), 85);
        assert_eq!(findings, [""; 0]);
    }

    #[test]
    fn test_that_does_not_exist_is_found_and_so_is_a_missing_reason() {
        let table = "| F1 | a | yes | `torture:gone` `x.rs::here` `x.rs::gone` |  |\n| F2 | b | no |  |  |\n";

        let findings = findings(&read(table).unwrap(), |_| Some("fn here() {}".into()));

        assert!(findings.iter().any(|finding| finding == "F1: there is no torture:gone"), "{findings:?}");
        assert!(findings.iter().any(|finding| finding == "F1: there is no x.rs::gone"), "{findings:?}");
        assert!(!findings.iter().any(|finding| finding.contains("x.rs::here")), "{findings:?}");
        assert!(
            findings.iter().any(|finding| finding.starts_with("F2: what is not automated")),
            "{findings:?}"
        );
    }
}
