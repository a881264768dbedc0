//! Names in Redis.

use std::fmt::Write;

use consign_core::operation::Operation;
use sha2::{Digest, Sha256};

/// So much of the consumer's name is written out, for people; the digest holds all of it.
const CONSUMER_CHARACTERS_MAX: usize = 64;

/// The key of an operation: `PREFIX:CONSUMER:DIGEST`.
///
/// The digest covers consumer and business key with their lengths, so that keys differ whenever one of them does, in a
/// single byte or in where one ends and the other begins; and it has no colon, so that the prefix cannot be mistaken
/// either. Business keys may be personal data: they are not written out.
pub(crate) fn key(prefix: &str, operation: &Operation) -> String {
    let mut hasher = Sha256::new();
    for part in [&operation.consumer, &operation.key] {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    let readable: String = operation.consumer.chars().take(CONSUMER_CHARACTERS_MAX).collect();
    hasher.finalize().iter().fold(format!("{prefix}:{readable}:"), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    fn named(prefix: &str, consumer: &str, business: &str) -> String {
        let operation = Operation { consumer: consumer.into(), key: business.into(), ..Operation::default() };
        key(prefix, &operation)
    }

    #[test]
    fn form_of_the_key_is_the_one_that_servers_hold() {
        assert_eq!(
            named("consign", "points", "order-1"),
            "consign:points:073519bd19a74612a69fb9d532d73454c08ce7e5f209be2f56c28f9ac4032b81"
        );
    }

    #[test]
    fn keys_that_differ_by_case_accents_or_spaces_stay_different() {
        let business =
            ["order", "Order", "órder", "o\u{301}rder", "order ", " order", "order\0", "order\n", ""];

        let keys: BTreeSet<_> = business.iter().map(|business| named("p", "points", business)).collect();

        assert_eq!(keys.len(), business.len());
    }

    #[test]
    fn colons_never_move_the_border_between_the_parts() {
        let parts =
            [("p", "a", "b:c"), ("p", "a:b", "c"), ("p:a", "b", "c"), ("p", "a:b:c", ""), ("p:a:b", "c", "")];

        let keys: BTreeSet<_> =
            parts.iter().map(|(prefix, consumer, business)| named(prefix, consumer, business)).collect();

        assert_eq!(keys.len(), parts.len());
    }

    #[test]
    fn consumers_with_the_same_beginning_stay_different_and_the_length_is_bounded() {
        let long = "ü".repeat(300);

        let one = named("p", &format!("{long}a"), &"k".repeat(1_000_000));
        let other = named("p", &format!("{long}b"), &"k".repeat(1_000_000));

        assert_ne!(one, other);
        assert_ne!(named("p", &format!("{long}a"), "b"), named("p", &long, "ab"));
        assert!(one.len() <= "p:".len() + 4 * CONSUMER_CHARACTERS_MAX + ":".len() + 64, "{}", one.len());
    }

    proptest! {
        #[test]
        fn different_operations_have_different_keys(
            one in ("[a:]{0,4}", "[a:]{0,4}", "[a:]{0,4}"),
            other in ("[a:]{0,4}", "[a:]{0,4}", "[a:]{0,4}"),
        ) {
            let same = named(&one.0, &one.1, &one.2) == named(&other.0, &other.1, &other.2);

            prop_assert_eq!(same, one == other);
        }
    }
}
