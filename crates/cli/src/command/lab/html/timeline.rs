//! A picture of what happened when on one side: a lane for each actor, time going down.

use std::fmt::Write;
use std::time::Duration;

use super::escaped;
use crate::command::lab::record::{Actor, Moment, What};
use crate::command::lab::text::Language;

const ROW: usize = 22;
const LANE: usize = 26;
const TIME: usize = 64;
const WIDTH: usize = 660;
/// A picture with more rows shows the first and the last ones.
const ROWS_MAX: usize = 44;
const LAST_ROWS: usize = 16;

/// Steps of one actor and one kind that follow each other.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    at: Duration,
    actor: Actor,
    what: What,
    orders: Vec<i64>,
}

/// How a step looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tone {
    Good,
    Bad,
    Plain,
}

/// Draws.
pub fn picture(page: &mut String, title: &str, moments: &[Moment], language: Language) {
    let rows = rows(moments);
    let actors: Vec<Actor> =
        Actor::ALL.into_iter().filter(|actor| rows.iter().any(|row| row.actor == *actor)).collect();
    let left_out = rows.len().saturating_sub(ROWS_MAX);
    let shown = rows.len() - left_out + usize::from(left_out > 0);
    let (top, lanes) = (actors.len() * 16 + 12, TIME + actors.len() * LANE);
    let height = top + shown * ROW + 8;
    let _ = writeln!(
        page,
        "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\"><title>{}</title>",
        escaped(title)
    );
    for (lane, actor) in actors.iter().enumerate() {
        let (x, y) = (TIME + lane * LANE + LANE / 2, lane * 16 + 12);
        let _ = writeln!(
            page,
            "<text x=\"{}\" y=\"{y}\">{}</text><line class=\"life\" x1=\"{x}\" y1=\"{}\" x2=\"{x}\" y2=\"{}\"/>",
            x - 4,
            escaped(language.actor(*actor)),
            y + 5,
            height - 6
        );
    }
    let mut y = top + ROW / 2;
    for (index, row) in rows.iter().enumerate() {
        if left_out > 0 && (ROWS_MAX - LAST_ROWS..ROWS_MAX - LAST_ROWS + left_out).contains(&index) {
            if index == ROWS_MAX - LAST_ROWS {
                let text = format!("\u{2026} {left_out} {}", language.words().left_out);
                let _ = writeln!(
                    page,
                    "<text class=\"time\" x=\"{}\" y=\"{}\">{}</text>",
                    lanes + 8,
                    y + 4,
                    escaped(&text)
                );
                y += ROW;
            }
            continue;
        }
        let lane = actors.iter().position(|actor| *actor == row.actor).unwrap_or_default();
        draw(page, row, (TIME + lane * LANE + LANE / 2, lanes + 8, y), language);
        y += ROW;
    }
    page.push_str("</svg>\n");
}

fn draw(page: &mut String, row: &Row, (x, text_x, y): (usize, usize, usize), language: Language) {
    let seconds = format!("{:.3} s", row.at.as_secs_f64());
    let _ = write!(page, "<text class=\"time\" x=\"0\" y=\"{}\">{seconds}</text>", y + 4);
    let tone = tone(row.what);
    let class = match tone {
        Tone::Good => " good",
        Tone::Bad => " bad",
        Tone::Plain => "",
    };
    if row.what == What::Died {
        let (left, right, above, below) = (x - 6, x + 6, y - 6, y + 6);
        let _ = write!(
            page,
            "<path class=\"cross\" d=\"M{left} {above}L{right} {below}M{left} {below}L{right} {above}\"/>"
        );
    } else {
        let _ = write!(page, "<circle class=\"dot{class}\" cx=\"{x}\" cy=\"{y}\" r=\"5\"/>");
    }
    let words = language.words();
    let orders = match row.orders.as_slice() {
        [] => String::new(),
        [order] => format!(" ({} {order})", words.order),
        several => format!(" ({} {})", words.orders, ranges(several)),
    };
    let text = format!("{}: {}{orders}", language.actor(row.actor), language.what(row.what));
    let class = if tone == Tone::Bad { " class=\"bad\"" } else { "" };
    let _ = writeln!(page, "<text{class} x=\"{text_x}\" y=\"{}\">{}</text>", y + 4, escaped(&text));
}

fn rows(moments: &[Moment]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for Moment { at, step } in moments {
        match rows.last_mut() {
            Some(last) if (last.actor, last.what) == (step.actor, step.what) => {
                last.orders.extend(step.order);
            }
            _ => rows.push(Row {
                at: *at,
                actor: step.actor,
                what: step.what,
                orders: step.order.into_iter().collect(),
            }),
        }
    }
    rows
}

/// Numbers in the order they came, runs written as ranges: `1-3, 5, 5`.
fn ranges(numbers: &[i64]) -> String {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let written = runs.iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    });
    written.collect::<Vec<_>>().join(", ")
}

const fn tone(what: What) -> Tone {
    match what {
        What::Died
        | What::NotYetCommitted
        | What::SentBlindly
        | What::ConfirmedUnroutable
        | What::TimedOut
        | What::Paused
        | What::Failed
        | What::StillBlocked
        | What::LineDead
        | What::LineCut
        | What::GivenUp
        | What::DatabaseAway
        | What::StillAtWork
        | What::NoQuestion
        | What::MemoryLost => Tone::Bad,
        What::OrderCommitted
        | What::EventCommitted
        | What::Confirmed
        | What::Fenced
        | What::EffectCommitted
        | What::ConflictRecorded
        | What::PutAside
        | What::KeyFenced
        | What::Found
        | What::PurgeRefused => Tone::Good,
        What::Started
        | What::Unroutable
        | What::Unknown
        | What::Refused
        | What::Selected
        | What::Claimed
        | What::MarkedSent
        | What::MarkedNew
        | What::Resumed
        | What::Delivered
        | What::NoMarkerSeen
        | What::MarkerStored
        | What::EffectOpen
        | What::TakenForRepeat
        | What::Stale
        | What::Acknowledged
        | What::Requeued
        | What::LineRestored
        | What::QueueBound
        | What::MarkersPurged
        | What::HalfSent
        | What::EndSent
        | What::Asked
        | What::AnsweredCommit
        | What::AnsweredRollback
        | What::LeftOpen
        | What::DatabaseBack
        | What::LocalRolledBack
        | What::Replayed => Tone::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::lab::record::Step;

    fn moment(what: What, order: i64) -> Moment {
        Moment { at: Duration::ZERO, step: Step { actor: Actor::Shop, what, order: Some(order) } }
    }

    #[test]
    fn steps_of_a_kind_that_follow_each_other_are_one_row() {
        let moments = [(What::Confirmed, 1), (What::Confirmed, 2), (What::Died, 2), (What::Confirmed, 3)];

        let rows = rows(&moments.map(|(what, order)| moment(what, order)));

        assert_eq!(
            rows.iter().map(|row| row.orders.clone()).collect::<Vec<_>>(),
            [vec![1, 2], vec![2], vec![3]]
        );
    }

    #[test]
    fn numbers_that_follow_each_other_are_a_range() {
        assert_eq!(ranges(&[1, 2, 3, 5, 5, 7]), "1-3, 5, 5, 7");
    }

    #[test]
    fn a_long_run_keeps_its_begin_and_its_end() {
        let kinds = [What::Delivered, What::EffectCommitted];
        let moments: Vec<Moment> =
            (0..200).map(|order| moment(kinds[usize::from(order % 2 == 1)], order)).collect();
        let mut page = String::new();

        picture(&mut page, "a < b", &moments, Language::En);

        assert_eq!(page.matches("<circle").count(), ROWS_MAX);
        assert!(
            page.contains("156 more steps") && page.contains("(order 0)") && page.contains("(order 199)")
        );
        assert!(page.contains("<title>a &lt; b</title>"));
    }
}
