//! Many rows in one INSERT: the row's own text again and again, every value bound as in a row of its own.

use consign_core::declared::InsertShape;
use consign_core::value::Value;
use sqlx::mysql::MySqlArguments;

use crate::mysql::inbox::each::Run;
use crate::mysql::inbox::value::{add_value, weight_of};
use crate::mysql::packet;

/// How an INSERT runs for many.
#[derive(Debug)]
pub(super) struct InsertPlan {
    head: String,
    row: String,
}

impl InsertPlan {
    pub(super) fn new(shape: &InsertShape) -> Self {
        Self { head: shape.head.clone(), row: shape.row.clone() }
    }

    pub(super) fn runs(&self, values: &[&[Value]]) -> Vec<Run> {
        let places: Vec<usize> = (0..values.len()).collect();
        // The text travels once, the values each time; neither may be too long.
        let weigh = |at: &usize| {
            let content = values[*at].iter().map(weight_of).sum();
            packet::weight(values[*at].len(), content).max(self.row.len() + 2)
        };
        packet::pieces(&places, |rest| packet::rows(rest, weigh))
            .map(|members| {
                let mut arguments = MySqlArguments::default();
                for value in members.iter().flat_map(|&at| values[at]) {
                    add_value(&mut arguments, value);
                }
                let rows = vec![self.row.as_str(); members.len()].join(", ");
                Run { members: members.to_vec(), sql: format!("{} {rows}", self.head), arguments }
            })
            .collect()
    }
}
