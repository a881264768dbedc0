//! The SQL files of the stores: every dialect has the same set.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The folders to compare; one that does not exist yet is left out.
const DIALECTS: [&str; 2] = ["crates/store/src/mysql/sql", "crates/store/src/sqlite/sql"];

/// What only a server needs: locks by rows, relays that share, purge behind old snapshots, packets and triggers of others.
const SERVER_ONLY: [&str; 20] = [
    "claim_select_from.sql",
    "create_consign_partition.sql",
    "create_consign_relay.sql",
    "introspect_triggers.sql",
    "ordered_chains.sql",
    "ordered_defer_lock.sql",
    "ordered_lock.sql",
    "packet_limit.sql",
    "parked_lock.sql",
    "parked_look.sql",
    "partition_give.sql",
    "partition_held.sql",
    "partition_insert.sql",
    "partition_lock.sql",
    "partition_renew.sql",
    "partition_status.sql",
    "partition_take.sql",
    "relay_leave.sql",
    "relay_live.sql",
    "relay_seen.sql",
];

pub fn check(files: &[PathBuf]) -> Vec<String> {
    let [first, second] = DIALECTS.map(|folder| (folder, names(files, folder)));
    if first.1.is_empty() || second.1.is_empty() {
        return Vec::new();
    }
    let mut findings = absent(&first, &second);
    findings.extend(absent(&second, &first));
    findings
}

type Dialect<'files> = (&'static str, BTreeSet<&'files str>);

fn absent(here: &Dialect<'_>, there: &Dialect<'_>) -> Vec<String> {
    let names = here.1.difference(&there.1).filter(|name| !SERVER_ONLY.contains(name));
    names.map(|name| format!("{}/{name}:1: has no counterpart in {}", here.0, there.0)).collect()
}

fn names<'files>(files: &'files [PathBuf], folder: &str) -> BTreeSet<&'files str> {
    let inside = files.iter().filter(|file| file.parent() == Some(Path::new(folder)));
    let statements = inside.filter(|file| file.extension().is_some_and(|extension| extension == "sql"));
    statements.filter_map(|file| file.file_name()?.to_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn statement_that_one_dialect_lacks_is_named() {
        let found = check(&paths(&[
            "crates/store/src/mysql/sql/claim.sql",
            "crates/store/src/mysql/sql/sweep.sql",
            "crates/store/src/sqlite/sql/claim.sql",
        ]));

        assert_eq!(
            found,
            ["crates/store/src/mysql/sql/sweep.sql:1: has no counterpart in crates/store/src/sqlite/sql"]
        );
    }

    #[test]
    fn dialect_that_does_not_exist_yet_is_left_out() {
        assert!(check(&paths(&["crates/store/src/mysql/sql/claim.sql"])).is_empty());
    }
}
