//! How long things took.

/// Spans in microseconds, sorted.
#[derive(Debug, Default)]
pub struct Spans(Vec<u64>);

impl Spans {
    /// These spans, in any order.
    pub fn of(spans: impl IntoIterator<Item = u64>) -> Self {
        let mut spans: Vec<u64> = spans.into_iter().collect();
        spans.sort_unstable();
        Self(spans)
    }

    /// How many there are.
    #[cfg(test)]
    pub const fn count(&self) -> usize {
        self.0.len()
    }

    /// The smallest span that this share of all spans does not exceed; zero when there is none.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "shares are from 0 to 1, and no bench has 2^52 events"
    )]
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = (share * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }

    /// The same in milliseconds, as it is printed.
    #[expect(clippy::cast_precision_loss, reason = "no span has 2^52 microseconds")]
    pub fn milliseconds(&self, share: f64) -> f64 {
        super::rounded(self.quantile(share) as f64 / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Spans;

    #[test]
    fn quantiles_are_spans_that_occurred() {
        let spans = Spans::of((1..=1000).rev());

        let figures = [0.0, 0.5, 0.99, 0.999, 1.0].map(|share| spans.quantile(share));

        assert_eq!(figures, [1, 500, 990, 999, 1000]);
        assert_eq!(Spans::of(std::iter::empty()).quantile(0.5), 0);
    }
}
