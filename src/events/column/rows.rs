//! Collects rows, and makes batches of them.

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::ArrowError;

use perf_prof_system::budget::Budget;

use super::{
    builder::Builder,
    cell::Cell,
    plan::{ColumnPlan, Plan},
    words::Words,
};
use crate::event::{
    Context, Sample,
    reader::{Facts, Input},
};

/// An event that becomes a row.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The index of the event type in the plan.
    pub event: usize,
    /// The whole record.
    pub record: &'a [u8],
}

/// Columns to which rows are appended, until `take` returns them as a batch.
pub struct Columns {
    plan: Plan,
    /// The columns of integers at fixed offsets.
    words: Words,
    /// The other columns, each with its index in the plan.
    builders: Vec<(usize, Builder)>,
    rows: usize,
    limit: BatchLimit,
    /// The memory of a row, in bytes, without texts, byte strings and elements of lists.
    bytes_of_row: usize,
}

/// When a batch is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimit {
    /// The maximum number of rows.
    pub rows: usize,
    /// The maximum memory of the columns, in bytes. The row that exceeds it is still appended.
    pub bytes: usize,
}

impl BatchLimit {
    /// Returns the limit for batches of `rows` rows. `count` batches are filled at the same time, and together get a
    /// quarter of the budget's share. The rest is for two things: a batch has its texts in memory twice while it is
    /// finished, and finished batches wait until they are written.
    pub fn new(rows: usize, budget: &Budget, count: usize) -> BatchLimit {
        BatchLimit { rows, bytes: (budget.share() / 4 / count.max(1)).min(MOST_BYTES) }
    }

    /// Returns the number of rows to reserve capacity for.
    fn reserved(self, bytes_of_row: usize) -> usize {
        self.rows.min(RESERVED).min(self.bytes / bytes_of_row)
    }
}

/// The maximum number of rows to reserve capacity for.
const RESERVED: usize = 1 << 16;
/// The maximum memory of a batch, in bytes. Larger batches do not make readers faster, and Arrow counts the bytes of a
/// column in 31 bits.
const MOST_BYTES: usize = 16 << 20;

impl Columns {
    /// Creates columns without rows. Batches have this limit.
    pub fn new(plan: Plan, limit: BatchLimit) -> Columns {
        let reserved = limit.reserved(bytes_of_row(&plan));
        let others = plan.columns.iter().enumerate().filter(|(_, column)| !is_of_words(column));
        let builders = others.map(|(at, column)| (at, Builder::new(column.ty, reserved))).collect();
        let bytes_of_row = bytes_of_row(&plan);
        Columns { words: Words::new(&plan, reserved), plan, builders, rows: 0, limit, bytes_of_row }
    }

    /// Returns the plan of the columns.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the number of rows since the last batch was taken.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Returns how many rows can be appended before the batch is full.
    pub fn room(&self) -> usize {
        let contents: usize = self.builders.iter().map(|(_, builder)| builder.heap_bytes()).sum();
        let is_full = contents + self.rows * self.bytes_of_row >= self.limit.bytes && self.rows != 0;
        if is_full { 0 } else { self.limit.rows.saturating_sub(self.rows) }
    }

    /// Appends a row. Ignores events whose type is not in the plan.
    #[inline]
    pub fn push(&mut self, Row { event, record }: Row<'_>, context: &Context) -> Result<(), ArrowError> {
        if event >= self.plan.types.len() {
            return Ok(());
        }
        self.words.push(event, record);
        self.rows += 1;
        if self.builders.is_empty() { Ok(()) } else { self.push_others(event, record, context) }
    }

    fn push_others(&mut self, event: usize, record: &[u8], context: &Context) -> Result<(), ArrowError> {
        let Columns { plan, builders, .. } = self;
        let Some(of_type) = plan.types.get(event) else { return Ok(()) };
        let input = Input { sample: Sample { event: of_type, record }, facts: Facts::Run(context) };
        builders.iter_mut().try_for_each(|(at, builder)| {
            let cells = plan.columns.get(*at).map_or(&[][..], |column| &column.cells);
            builder.push(event, cells.get(event).unwrap_or(&Cell::Null), &input)
        })
    }

    /// Appends rows.
    pub fn append(&mut self, rows: &[Row<'_>], context: &Context) -> Result<(), ArrowError> {
        rows.iter().try_for_each(|row| self.push(*row, context))
    }

    /// Takes all rows as a batch.
    pub fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        let reserved = self.limit.reserved(self.bytes_of_row);
        let mut words = self.words.finish(reserved);
        let mut others = self.builders.iter_mut();
        let mut arrays = Vec::with_capacity(self.plan.columns.len());
        for column in &self.plan.columns {
            if is_of_words(column) {
                arrays.extend(words.next());
            } else if let Some((_, builder)) = others.next() {
                arrays.push(builder.finish(reserved)?);
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.rows)));
        RecordBatch::try_new_with_options(self.plan.schema.clone(), arrays, &options)
    }
}

fn bytes_of_row(plan: &Plan) -> usize {
    plan.columns.iter().map(|column| column.ty.bytes_of_row()).sum::<usize>().max(1)
}

fn is_of_words(column: &ColumnPlan) -> bool {
    Words::has(column.ty, &column.cells)
}
