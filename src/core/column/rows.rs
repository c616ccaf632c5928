//! Rows that become batches.

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::ArrowError;

use super::{builder::Builder, plan::Plan};
use crate::{
    aggregate::{Facts, Input},
    event::{Context, Sample},
};

/// An event: the index of its type, and its record.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The index of the event type in those of the plan.
    pub event: usize,
    /// The whole record.
    pub record: &'a [u8],
}

/// Columns that rows are appended to, until they are taken as a batch.
pub struct Columns {
    plan: Plan,
    builders: Vec<Builder>,
    rows: usize,
    /// The number of rows of a batch.
    limit: usize,
    /// The bytes of the records of the rows.
    bytes: usize,
}

/// The number of rows for which memory is reserved.
const RESERVED: usize = 1 << 16;
/// A batch is full if its records have this many bytes. Arrow counts the bytes of a column in 31 bits.
const LIMIT_BYTES: usize = 1 << 30;

impl Columns {
    /// Creates columns without rows, for batches of this many rows.
    pub fn new(plan: Plan, limit: usize) -> Columns {
        let builders = plan.columns.iter().map(|column| Builder::new(column.ty, limit.min(RESERVED))).collect();
        Columns { plan, builders, rows: 0, limit, bytes: 0 }
    }

    /// Returns how the columns are read.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the number of rows that were not taken.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Returns the number of rows that may be appended before the batch is full.
    pub fn room(&self) -> usize {
        if self.bytes < LIMIT_BYTES { self.limit.saturating_sub(self.rows) } else { 0 }
    }

    /// Appends rows.
    pub fn append(&mut self, rows: &[Row<'_>], context: &Context) -> Result<(), ArrowError> {
        let Columns { plan, builders, .. } = self;
        let facts = Facts::Run(context);
        let known = rows.iter().filter_map(|row| Some((row.event, plan.types.get(row.event)?, row.record)));
        for (builder, column) in builders.iter_mut().zip(&plan.columns) {
            let inputs =
                known.clone().map(|(at, event, record)| (at, Input { sample: Sample { event, record }, facts }));
            builder.extend(&column.cells, inputs)?;
        }
        self.rows += known.clone().count();
        self.bytes += known.map(|(_, _, record)| record.len()).sum::<usize>();
        Ok(())
    }

    /// Takes all rows as a batch.
    pub fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        let arrays = self
            .builders
            .iter_mut()
            .map(|builder| builder.finish(self.limit.min(RESERVED)))
            .collect::<Result<_, _>>()?;
        self.bytes = 0;
        let options = RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.rows)));
        RecordBatch::try_new_with_options(self.plan.schema.clone(), arrays, &options)
    }
}
