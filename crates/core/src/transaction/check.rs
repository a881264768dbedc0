//! The answer to a check-back.

use crate::ports::StoreError;
use crate::transaction::half::Question;
use crate::transaction::marker::{Fence, Look, Marker, MarkerStore};
use crate::transaction::{Commit, Doubt, Rollback, Spans, Verdict};

/// Answers a check-back from the markers. It has no side effect but the rollback marker, so the same question may be asked
/// any number of times, by several brokers' threads at once.
///
/// `Commit` is answered behind a committed marker alone, `Rollback` behind a rollback marker alone. Everything else, and
/// every error, is `Unknown`: never a guess.
pub async fn check<S: MarkerStore>(store: &S, question: &Question, spans: &Spans) -> Verdict {
    if question.store.as_deref() != Some(store.name().as_str()) {
        return Verdict::Unknown(Doubt::Foreign);
    }
    let Look { marker, now_micros } = match store.look(&question.key).await {
        Ok(look) => look,
        Err(error) => return unknown(error),
    };
    if let Some(marker) = marker {
        return decided(marker);
    }
    if let Some(doubt) = doubt(question, now_micros, spans) {
        return Verdict::Unknown(doubt);
    }
    match store.fence(&question.key, &question.topic).await {
        Ok(Fence::Inserted) => Verdict::Rollback(Rollback(())),
        Ok(Fence::Taken) => match store.look(&question.key).await {
            Ok(Look { marker: Some(marker), .. }) => decided(marker),
            Ok(Look { marker: None, .. }) => Verdict::Unknown(Doubt::Contested),
            Err(error) => unknown(error),
        },
        Err(error) => unknown(error),
    }
}

fn decided(marker: Marker) -> Verdict {
    match marker {
        Marker::Committed => Verdict::Commit(Commit(())),
        Marker::RolledBack => Verdict::Rollback(Rollback(())),
    }
}

fn unknown(error: StoreError) -> Verdict {
    Verdict::Unknown(Doubt::Store(error))
}

/// Why a transaction without a marker must not be fenced.
fn doubt(question: &Question, now_micros: i64, spans: &Spans) -> Option<Doubt> {
    let Some(begun) = question.begun_at_micros else { return Some(Doubt::Undated) };
    let age = i128::from(now_micros) - i128::from(begun);
    let span = |span: std::time::Duration| i128::try_from(span.as_micros()).unwrap_or(i128::MAX);
    if age < span(spans.longest()) {
        // Also when it seems to begin in the future: the store's clock went back.
        Some(Doubt::Young)
    } else if age >= span(spans.horizon()) {
        // Its marker may have been there and be forgotten.
        Some(Doubt::Forgotten)
    } else {
        None
    }
}
