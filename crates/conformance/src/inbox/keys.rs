//! Keys are kept exactly.

use consign_core::inbox::{ProcessError, Processed};
use consign_core::operation::Operation;

use super::InboxFixture;
use super::story::{Award, CONSUMER, Fates, USER, award, process, processed, with_account};

fn under(key: impl Into<String>) -> Operation {
    Operation { key: key.into(), ..award("42", 100) }
}

/// `Order:42`, `order:42` and `order:42 ` are different keys.
/// Cases B45 (`unkeyed/unkey#4091`) and B46 (`indigo-iam/iam#1136`): loose collations suppress events silently.
pub async fn keys_that_differ_by_case_or_trailing_space_are_different_operations<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();
    let keys = ["order:42", "Order:42", "\u{d6}rder:42", "o\u{308}rder:42", "order:42 ", " order:42"];

    for key in keys {
        assert_eq!(processed(&store, &under(key), &Award(1)).await, Processed::Applied, "{key:?}");
    }
    for key in keys {
        assert_eq!(processed(&store, &under(key), &Award(1)).await, Processed::Duplicate, "{key:?}");
    }

    assert_eq!((fixture.points(USER).await, fixture.markers(CONSUMER).await), (6, 6));
}

/// A key that does not fit is an error: cut, it would collide with its neighbours.
/// Case B49 (`transact-rs/sqlx#1553`): truncation with a warning nobody reads.
pub async fn a_key_longer_than_its_column_is_an_error_and_never_cut<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();
    let long = "k".repeat(F::KEY_CHARS_MAX);

    for last in ["1", "2"] {
        let fates = Fates::default();
        let key = format!("{long}{last}");
        let failed = process(&store, &fates, &under(key), &Award(1)).await.expect_err("the key is refused");

        assert!(matches!(failed.error, ProcessError::Handler(_)), "{:?}", failed.error);
        assert!(fates.all().is_empty());
    }
    assert_eq!((fixture.points(USER).await, fixture.markers(CONSUMER).await), (0, 0));
}

/// A key that just fits is taken, counted in characters.
pub async fn a_key_of_the_longest_length_is_taken<F: InboxFixture>() {
    let fixture = with_account::<F>().await;
    let store = fixture.store();
    let longest = "\u{4e2d}".repeat(F::KEY_CHARS_MAX);

    assert_eq!(processed(&store, &under(&longest), &Award(1)).await, Processed::Applied);
    assert_eq!(processed(&store, &under(&longest), &Award(1)).await, Processed::Duplicate);

    assert_eq!(fixture.markers(CONSUMER).await, 1);
}
