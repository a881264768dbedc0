//! How many rows one statement carries: enough to save round trips, few enough to leave in one piece.
//!
//! sqlx leaves Nagle's algorithm on. A packet above its write buffer leaves in two writes, and the second waits for
//! the server's delayed acknowledgement: 40 ms instead of microseconds (measured).

use crate::statement::{LIST_MAX, bucket};

/// The most bytes of bound values in one statement; sqlx's buffer holds 16 KiB, and the rest is for headers.
pub(crate) const BYTES_MAX: usize = 12 * 1024;

/// The most rows of one INSERT.
pub(crate) const ROWS_MAX: usize = 128;

/// Every bound value has two bytes for its type, and text one to three for its length.
const VALUE_BYTES: usize = 5;

/// What values with this many bytes of content take in a packet.
pub(crate) const fn weight(values: usize, content_bytes: usize) -> usize {
    values * VALUE_BYTES + content_bytes
}

/// How many of the items the next INSERT takes: a power of two, so that few texts are prepared, and at least one.
pub(crate) fn rows<T>(items: &[T], weigh: impl Fn(&T) -> usize) -> usize {
    let mut bytes = 0_usize;
    let fitting = items.iter().take(ROWS_MAX).take_while(|item| {
        bytes = bytes.saturating_add(weigh(item));
        bytes <= BYTES_MAX
    });
    1 << fitting.count().max(1).ilog2()
}

/// How many of the items the next list takes, once it is padded with the last of them: at least one.
pub(crate) fn list<T>(items: &[T], weigh: impl Fn(&T) -> usize) -> usize {
    let (mut bytes, mut fitting) = (0_usize, 1);
    for (index, item) in items.iter().take(LIST_MAX).enumerate() {
        let (length, weight) = (index + 1, weigh(item));
        bytes = bytes.saturating_add(weight);
        if bytes > BYTES_MAX {
            break;
        }
        if bytes + (bucket(length) - length) * weight <= BYTES_MAX {
            fitting = length;
        }
    }
    fitting.min(items.len())
}

/// Cuts items into pieces, the length of each told by `next`.
pub(crate) fn pieces<T>(mut items: &[T], next: impl Fn(&[T]) -> usize) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        if items.is_empty() {
            return None;
        }
        let (piece, rest) = items.split_at(next(items).clamp(1, items.len()));
        items = rest;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(items: usize, weight: usize, next: fn(&[usize], usize) -> usize) -> Vec<usize> {
        let items = vec![weight; items];
        pieces(&items, |items| next(items, weight)).map(<[usize]>::len).collect()
    }

    #[test]
    fn rows_come_in_powers_of_two_that_fit_one_packet() {
        let by_rows = |items: &[usize], _| rows(items, |weight| *weight);

        assert_eq!(lengths(100, 50, by_rows), [64, 32, 4]);
        assert_eq!(lengths(300, 50, by_rows), [128, 128, 32, 8, 4]);
        assert_eq!(lengths(9, 3000, by_rows), [4, 4, 1]);
        assert_eq!(lengths(2, 1 << 20, by_rows), [1, 1], "a row that fits nowhere travels alone");
    }

    #[test]
    fn lists_fit_one_packet_with_their_padding() {
        let by_list = |items: &[usize], _| list(items, |weight| *weight);

        assert_eq!(lengths(100, 50, by_list), [100]);
        assert_eq!(lengths(200, 50, by_list), [128, 72], "256 of them would be too many");
        assert_eq!(lengths(300, 4, by_list), [128, 128, 44]);
        assert_eq!(lengths(2, 1 << 20, by_list), [1, 1]);
        assert_eq!(list::<usize>(&[], |weight| *weight), 0);
    }
}
