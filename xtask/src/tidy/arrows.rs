//! Which crate may depend on which: arrows point from the application down to the core.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::workspace;

/// A crate and what it must never depend on, not even for its tests. A name that ends in `*` is a beginning.
struct Rule {
    package: &'static str,
    never: &'static [&'static str],
    why: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        package: "consign-core",
        never: &[
            "consign*",
            "tokio*",
            "sqlx*",
            "lapin",
            "hyper*",
            "reqwest",
            "rustls*",
            "tracing-subscriber",
            "rand",
            "getrandom",
            "chrono",
            "time",
        ],
        why: "core has no runtime, no I/O, no clock and no randomness of its own",
    },
    Rule { package: "consign-amqp", never: &["consign*"], why: "the AMQP client stands alone" },
    Rule {
        package: "consign-conformance",
        never: &[
            "consign",
            "consign-amqp",
            "consign-broker",
            "consign-cli",
            "consign-lab",
            "consign-sim",
            "consign-store",
        ],
        why: "adapters import the suites, not the other way round",
    },
    Rule {
        package: "consign-store",
        never: &["consign", "consign-amqp", "consign-broker", "consign-cli", "consign-lab", "consign-sim"],
        why: "a store never talks to a broker and knows nothing of the application",
    },
    Rule {
        package: "consign-broker",
        never: &["consign", "consign-cli", "consign-lab", "consign-sim", "consign-store"],
        why: "a broker adapter knows nothing of stores or of the application",
    },
    Rule { package: "consign-failpoint", never: &["consign*"], why: "every crate may have crash points" },
    Rule { package: "seeded-fuzz", never: &["consign*"], why: "every crate may have fuzz targets" },
    Rule {
        package: "consign-torture",
        never: &[
            "consign",
            "consign-broker",
            "consign-core",
            "consign-filter",
            "consign-lab",
            "consign-sim",
            "consign-store",
        ],
        why: "the torture knows the product by its program, its tables and its messages only",
    },
    Rule {
        package: "consign-filter",
        never: &[
            "consign",
            "consign-amqp",
            "consign-broker",
            "consign-cli",
            "consign-lab",
            "consign-sim",
            "consign-store",
        ],
        why: "the filter gives hints and knows neither stores nor brokers",
    },
    Rule {
        package: "consign",
        never: &["consign-lab", "consign-sim"],
        why: "the library does not know its users",
    },
    Rule {
        package: "consign-sim",
        never: &["consign", "consign-broker", "consign-store", "sqlx*"],
        why: "the simulator has no real I/O",
    },
    Rule {
        package: "consign-model",
        never: &["consign*", "tokio*", "sqlx*"],
        why: "a model stands beside the product, not on it",
    },
    Rule { package: "consign-lab", never: &["consign-sim"], why: "the lab runs real parts only" },
    Rule {
        package: "xtask",
        never: &["consign*"],
        why: "the task runner builds in seconds, whatever is broken",
    },
    Rule { package: "*", never: &["consign-cli", "xtask"], why: "programs are not libraries" },
];

pub fn check() -> Result<Vec<String>> {
    let mut cargo = workspace::cargo();
    let output = cargo.args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata failed: {}", message.trim());
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    Ok(packages.iter().flat_map(findings).collect())
}

/// The forbidden dependencies of one package of the metadata.
fn findings(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let manifest = package["manifest_path"].as_str().unwrap_or_default();
    let root = workspace::root();
    let manifest = manifest.strip_prefix(root.to_str().unwrap_or_default()).unwrap_or(manifest);
    let manifest = manifest.trim_start_matches('/');
    let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names = dependencies.iter().filter_map(|dependency| dependency["name"].as_str());
    names
        .filter_map(|dependency| {
            let rule = RULES.iter().find(|rule| {
                matches(rule.package, name) && rule.never.iter().any(|never| matches(never, dependency))
            })?;
            Some(format!("{manifest}:1: {name} must not depend on {dependency}: {}", rule.why))
        })
        .collect()
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, dependencies: &[&str]) -> Value {
        let dependencies: Vec<_> =
            dependencies.iter().map(|name| json!({ "name": name, "kind": "dev" })).collect();
        json!({ "name": name, "manifest_path": "crates/x/Cargo.toml", "dependencies": dependencies })
    }

    #[test]
    fn arrow_against_the_direction_is_found_and_explained() {
        let found = findings(&package("consign-broker", &["consign-core", "consign-store"]));

        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("crates/x/Cargo.toml:1: consign-broker must not depend on consign-store")
        );
    }

    #[test]
    fn core_takes_neither_a_runtime_nor_a_database_client() {
        assert_eq!(
            findings(&package("consign-core", &["bytes", "thiserror", "tokio-util", "sqlx"])).len(),
            2
        );
    }

    #[test]
    fn nobody_imports_the_command_line() {
        assert_eq!(findings(&package("consign-lab", &["consign", "consign-cli"])).len(), 1);
    }

    #[test]
    fn arrows_down_are_fine() {
        assert!(
            findings(&package("consign-store", &["consign-core", "consign-conformance", "sqlx"])).is_empty()
        );
        assert!(findings(&package("consign-cli", &["consign", "consign-store", "clap"])).is_empty());
    }
}
