//! Length, names and words of single files.

use std::path::Path;

const LINES_MAX: usize = 600;

/// Names that say nothing about what is inside.
const NAMELESS: [&str; 8] = ["common", "helpers", "manager", "misc", "mod", "models", "types", "utils"];

/// Code that a generator wrote lies in folders of this name: nobody splits it.
const GENERATED: &str = "generated";

/// What must not be in Rust code, and what to do instead. Split, so that this file passes its own check.
const NOT_IN_CODE: [(&str, &str); 4] = [
    (concat!("to", "do!("), "write it, or leave it out"),
    (concat!("unimple", "mented!("), "write it, or leave it out"),
    (concat!("#[ig", "nore"), "a test that cannot run is a failure, not a skip"),
    (concat!("sleep(Duration::", "from_secs"), "wait for a condition with a deadline"),
];

/// Marks of unfinished work.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Paths that exist on one machine only.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/tm", "p/")];

/// Hosts of package registries: which one is used is for the machine to say, not for this repository.
const REGISTRIES: [&str; 8] = [
    concat!("crates", ".io/"),
    concat!("deb.", "debian.org"),
    concat!("files.python", "hosted.org"),
    concat!("proxy.", "golang.org"),
    concat!("py", "pi.org"),
    concat!("registry.", "npmjs.org"),
    concat!("repo.maven", ".apache.org"),
    concat!("repo1.", "maven.org"),
];

/// The findings in one file, whose path is relative to the root.
pub fn check(file: &Path, content: &str) -> Vec<String> {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name == "Cargo.lock" {
        return Vec::new();
    }
    let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let mut findings = Vec::new();
    let mut report =
        |line: usize, message: String| findings.push(format!("{}:{line}: {message}", file.display()));
    if extension == "rs" {
        check_module(file, content, &mut report);
    }
    if extension == "sql" && !content.starts_with("--") {
        report(
            1,
            "an SQL file starts with a comment (`-- …`): purpose, locks in order, index, guards".into(),
        );
    }
    for (index, line) in content.lines().enumerate() {
        if extension == "rs" {
            for (found, instead) in NOT_IN_CODE.iter().filter(|(word, _)| line.contains(word)) {
                report(index + 1, format!("`{found}`: {instead}"));
            }
        }
        if let Some(mark) = UNFINISHED.iter().find(|mark| has_word(line, mark)) {
            report(index + 1, format!("`{mark}`: finish it, or open an issue and leave the mark out"));
        }
        if let Some(path) = MACHINE_PATHS.iter().find(|path| has_path(line, path)) {
            report(
                index + 1,
                format!("`{path}…` exists on one machine only; use a relative path or a variable"),
            );
        }
        if let Some(host) = REGISTRIES.iter().find(|host| line.contains(*host)) {
            report(
                index + 1,
                format!("`{host}` is a package registry; its address belongs to the machine's set-up"),
            );
        }
    }
    findings
}

fn check_module(file: &Path, content: &str, report: &mut impl FnMut(usize, String)) {
    let lines = content.lines().count();
    let generated = file.iter().any(|part| part == GENERATED);
    if lines > LINES_MAX && !generated {
        report(
            LINES_MAX + 1,
            format!("{lines} lines are more than {LINES_MAX}; split the file by its nouns"),
        );
    }
    let parts = file.with_extension("");
    let nameless = parts.iter().filter_map(|part| part.to_str()).find(|part| NAMELESS.contains(part));
    if let Some(part) = nameless {
        report(1, format!("a module named `{part}` says nothing; find the noun it is about"));
    }
}

/// Whether the word stands alone, not inside an identifier.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(word).any(|(start, _)| {
        !line[..start].ends_with(is_part) && !line[start + word.len()..].starts_with(is_part)
    })
}

/// Whether an absolute path begins so, rather than a relative one or an address containing it.
fn has_path(line: &str, beginning: &str) -> bool {
    let continues = |character: char| character.is_alphanumeric() || "._-~/})*$".contains(character);
    line.match_indices(beginning).any(|(start, _)| !line[..start].ends_with(continues))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, content: &str) -> Vec<String> {
        check(Path::new(file), content)
    }

    #[test]
    fn finding_names_file_and_line() {
        let content = format!("fn main() {{\n    {}\"later\")\n}}\n", NOT_IN_CODE[0].0);

        assert!(found("crates/x/src/lib.rs", &content)[0].starts_with("crates/x/src/lib.rs:2: "));
    }

    #[test]
    fn every_word_on_the_lists_is_found() {
        let words = NOT_IN_CODE.iter().map(|(word, _)| word);
        for word in words.chain(&UNFINISHED).chain(&MACHINE_PATHS).chain(&REGISTRIES) {
            assert_eq!(found("a.rs", &format!("// {word} \n")).len(), 1, "{word}");
        }
    }

    #[test]
    fn relative_path_and_identifier_are_left_alone() {
        let path = MACHINE_PATHS[0];
        let mark = UNFINISHED[0];

        assert!(found("a.md", &format!("frame{path} and $HOME{path}x and {mark}_LIST\n")).is_empty());
    }

    #[test]
    fn long_file_and_nameless_module_are_found() {
        let long = "//\n".repeat(LINES_MAX + 1);

        assert_eq!(found("a.rs", &long).len(), 1);
        assert_eq!(found("a.rs", &long[3..]).len(), 0);
        assert_eq!(found("crates/x/src/generated.rs", &long).len(), 1);
        assert_eq!(found("crates/x/src/generated/a.rs", &long).len(), 0);
        assert_eq!(found("crates/x/src/utils.rs", "").len(), 1);
        assert_eq!(found("crates/x/src/mod.rs", "").len(), 1);
        assert_eq!(found("crates/x/src/types/a.rs", "").len(), 1);
    }

    #[test]
    fn statement_without_a_header_is_found() {
        assert_eq!(found("claim.sql", "SELECT 1;\n").len(), 1);
        assert_eq!(found("claim.sql", "-- Claims rows.\nSELECT 1;\n").len(), 0);
    }

    #[test]
    fn lock_file_is_generated_and_not_checked() {
        assert!(found("Cargo.lock", REGISTRIES[0]).is_empty());
    }
}
