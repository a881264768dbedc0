//! Which known name a misspelt one most likely meant.

/// The known name nearest to `name`, when one is near enough to be worth suggesting: at most a third of its
/// characters differ, and two swapped letters count as one difference. Letter case does not count.
pub fn nearest_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = name.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (distance(&wanted, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.chars().count().max(3) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The number of insertions, deletions, replacements and swaps of neighbours that turn one text into the other.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut before_last = vec![0; right.len() + 1];
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (row, &from) in left.iter().enumerate() {
        let mut current = vec![row + 1; right.len() + 1];
        for (column, &to) in right.iter().enumerate() {
            let replaced = last[column] + usize::from(from != to);
            current[column + 1] = replaced.min(last[column + 1] + 1).min(current[column] + 1);
            let swapped = row > 0 && column > 0 && from == right[column - 1] && left[row - 1] == to;
            if swapped {
                current[column + 1] = current[column + 1].min(before_last[column - 1] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_fingers_finds_the_name_that_was_meant() {
        let known = ["batch_rows", "batch_bytes", "window", "lease_seconds"];

        for (typed, meant) in [
            ("batch_row", Some("batch_rows")),
            ("batchrows", Some("batch_rows")),
            ("LEASE_SECONDS", Some("lease_seconds")),
            ("widnow", Some("window")),
            ("lease_secnods", Some("lease_seconds")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest_name(typed, known), meant, "{typed:?}");
        }
    }

    #[test]
    fn swapped_neighbours_are_one_difference() {
        for (one, other, differences) in [
            ("", "", 0),
            ("", "abc", 3),
            ("x", "yyyy", 4),
            ("abc", "abc", 0),
            ("ab", "ba", 1),
            ("ab", "xab", 1),
            ("aab", "aba", 1),
            ("abcd", "acbd", 1),
            ("flaw", "lawn", 2),
            ("xab", "ba", 2),
            ("abx", "bay", 2),
            ("kitten", "sitting", 3),
            ("abcdef", "badcfe", 3),
            // Nothing is put between letters that were swapped.
            ("ca", "abc", 3),
        ] {
            assert_eq!(distance(one, other), differences, "{one:?} and {other:?}");
            assert_eq!(distance(other, one), differences, "{other:?} and {one:?}");
        }
    }

    #[test]
    fn a_third_of_the_letters_may_differ_but_always_one() {
        for (typed, known, near) in [
            ("x", "y", true),
            ("ab", "xb", true),
            ("abcde", "abcxx", false),
            ("abcdef", "abcdxx", true),
            ("abcdefgh", "abcdexxx", false),
            ("abcdefghi", "abcdefxxx", true),
        ] {
            assert_eq!(nearest_name(typed, [known]), near.then_some(known), "{typed} and {known}");
        }
        assert_eq!(nearest_name("ab", ["xb", "ab"]), Some("ab"), "the nearest, not the first");
    }
}
