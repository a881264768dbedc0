//! What may change while a relay runs.

use super::*;

fn difference(to: &str) -> Difference {
    read(WHOLE).unwrap().written.difference(&read(to).unwrap().written)
}

#[test]
fn routes_retry_policies_and_limits_may_change() {
    for (from, to, changes) in [
        ("[[route]]\n", "[relay]\nwindow = 512\n\n[[route]]\n", ["relay.window 256 -> 512"]),
        ("[[route]]\n", "[retry]\njitter = 0.5\n\n[[route]]\n", ["retry.jitter 1.0 -> 0.5"]),
        ("event_type = \"*\"", "event_type = \"Order*\"", ["route[0].event_type \"*\" -> \"Order*\""]),
        (
            "[[route]]\n",
            "[destination.points.retry]\nattempts_max = 3\n\n[[route]]\n",
            ["destination.points.retry.attempts_max none -> 3"],
        ),
    ] {
        let text = changed(from, to);
        let changes = changes.into_iter().map(str::to_owned).collect();
        assert_eq!(difference(&text), Difference::Changeable(changes), "{to}");
    }
    assert_eq!(difference(WHOLE), Difference::Changeable(Vec::new()));
}

#[test]
fn everything_else_needs_a_restart_and_its_values_are_not_shown() {
    for (from, to, key) in [
        ("s3cr3t%40@db", "n3w@db", "store.url"),
        ("s3cr3t@mq", "n3w@mq", "destination.points.url"),
        ("[[route]]\n", "[relay]\nname = \"other\"\n\n[[route]]\n", "relay.name"),
        ("[[route]]\n", "[relay]\nmode = \"ordered\"\n\n[[route]]\n", "relay.mode"),
        ("[[route]]\n", "[[outbox]]\n\n[[route]]\n", "outbox[0].name"),
        ("compare = [", "prefetch = 7\nbatch = 7\ncompare = [", "consumer[0].prefetch"),
        (
            "[[route]]\n",
            "[destination.retry]\ntype = \"embedded\"\npath = \"q.db\"\n\n[[route]]\n",
            "destination.retry.path",
        ),
        (
            "[[route]]\n",
            "[destination.\"a.retry\"]\ntype = \"embedded\"\npath = \"q.db\"\n\n[[route]]\n",
            "destination.\"a.retry\".path",
        ),
    ] {
        // One limit changes as well: a reload is whole or it is none.
        let limits = if to.contains("[relay]\n") {
            changed(from, to)
        } else {
            format!("{}\n[relay]\nwindow = 512\n", changed(from, to))
        };

        let Difference::NeedsRestart(keys) = difference(&limits) else { panic!("{key} may not change") };

        assert!(keys.iter().any(|found| found == key), "{key} is not among {keys:?}");
        assert!(!keys.iter().any(|found| found.contains("window") || found.contains("n3w")), "{keys:?}");
    }
    let shown = format!("{:?}", read(WHOLE).unwrap());
    assert!(!shown.contains("s3cr3t"), "{shown}");
}
