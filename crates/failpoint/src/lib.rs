//! Named crash points, compiled in only with the feature `enabled`.
//!
//! `CONSIGN_FAILPOINTS=settle.after_commit=abort@3` ends the process, without unwinding, the third time the point is
//! passed. Several are separated by commas; without `@n` the first pass counts.

/// Every point there is, in the order of a row's life and of a delivery's life.
pub const POINTS: [&str; 15] = [
    "claim.before_begin",
    "claim.after_select",
    "claim.before_commit",
    "claim.after_commit",
    "publish.before_first_byte",
    "publish.before_confirm",
    "publish.after_outcome",
    "settle.before_update",
    "settle.after_update_before_commit",
    "settle.after_commit",
    "sweep.mid_batch",
    "sweep.after_commit",
    "consume.before_commit",
    "consume.after_commit",
    "consume.after_ack",
];

/// Passes the point `name`.
#[cfg(not(feature = "enabled"))]
#[inline]
pub fn pass(_name: &str) {}

/// Passes the point `name`; ends the process when the environment says so.
#[cfg(feature = "enabled")]
pub fn pass(name: &str) {
    enabled::pass(name);
}

#[cfg(feature = "enabled")]
mod enabled {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Point {
        name: String,
        nth: u64,
        passes: AtomicU64,
    }

    static POINTS: LazyLock<Vec<Point>> = LazyLock::new(|| {
        let text = std::env::var("CONSIGN_FAILPOINTS").unwrap_or_default();
        text.split(',').filter(|part| !part.is_empty()).map(read).collect()
    });

    fn read(text: &str) -> Point {
        let (name, action) = text.split_once('=').expect("a failpoint is written name=abort or name=abort@n");
        let (action, nth) = action.split_once('@').unwrap_or((action, "1"));
        assert_eq!(action, "abort", "the only failpoint action is abort");
        let nth = nth.parse().expect("the number after @ says which pass counts");
        Point { name: name.into(), nth, passes: AtomicU64::new(0) }
    }

    pub(super) fn pass(name: &str) {
        for point in POINTS.iter().filter(|point| point.name == name) {
            if point.passes.fetch_add(1, Ordering::Relaxed) + 1 == point.nth {
                std::process::abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Adds the names of the points that the sources in a folder pass.
    fn collect(folder: &Path, names: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).expect("the folder can be read").flatten() {
            let path = entry.path();
            if path.is_dir() {
                collect(&path, names);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source is text");
                let passes = text.split("failpoint::pass(\"").skip(1);
                names.extend(passes.filter_map(|rest| rest.split_once('"')).map(|(name, _)| name.to_owned()));
            }
        }
    }

    #[test]
    fn list_names_exactly_the_points_that_the_sources_pass() {
        let mut passed = BTreeSet::new();
        for crate_name in ["broker", "consign", "store"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(crate_name).join("src");
            collect(&folder, &mut passed);
        }

        assert_eq!(passed, POINTS.into_iter().map(str::to_owned).collect());
    }
}
