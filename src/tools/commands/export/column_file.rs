//! Files of columns: Parquet, and the file format of Arrow.

use std::{collections::HashMap, io, sync::Arc};

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use parquet::{
    arrow::{ARROW_SCHEMA_META_KEY, ArrowWriter, arrow_writer::ArrowWriterOptions, encode_arrow_schema},
    basic::Compression,
    errors::ParquetError,
    file::{metadata::KeyValue, properties::WriterProperties},
};
use perf_prof_events::{
    column::{BatchLimit, Columns, Plan, Row},
    event::{Context, Sample},
};
use perf_prof_system::budget::{Budget, HeldFor, Holding};

use super::{Destination, Exporter, Partial};

/// The maximum number of rows that are written together. No more rows are in memory.
const ROWS: usize = 1 << 16;
/// The maximum numbers of rows and of bytes of a row group of Parquet. Readers skip and read whole groups, and the
/// writer keeps a group in memory.
const GROUP: usize = 1 << 18;
pub const GROUP_BYTES: usize = 64 << 20;

/// A file of columns.
pub struct ColumnFile<W> {
    columns: Columns,
    to: W,
    /// Reserves memory in the budget for the columns and for the writer.
    _memory: Holding,
}

/// A file that batches of columns are written to.
pub trait ColumnWriter: Sized {
    /// Writes rows.
    fn write(&mut self, rows: &RecordBatch) -> io::Result<()>;
    /// Writes the end of the file. `partial` says which events and spans are missing. `None` if none are.
    fn finish(self, partial: Option<&str>) -> io::Result<()>;
}

/// The metadata key of the text about missing events and spans.
pub const PARTIAL: &str = "partial";

/// A Parquet file.
pub struct Parquet<'a> {
    to: ArrowWriter<&'a mut Destination>,
    schema: SchemaRef,
    /// A row group is written when it reaches this many bytes.
    group_bytes: usize,
}

impl<W: ColumnWriter> ColumnFile<W> {
    /// Creates a file with the columns of a plan. `metadata` describes the recording.
    pub fn new(
        plan: Plan,
        metadata: HashMap<String, String>,
        budget: &Budget,
        open: impl FnOnce(&SchemaRef) -> io::Result<W>,
    ) -> io::Result<ColumnFile<W>> {
        let to = open(&Arc::new(plan.schema.as_ref().clone().with_metadata(metadata)))?;
        let mut memory = budget.hold(HeldFor::Tables);
        memory.set(budget.share());
        Ok(ColumnFile { columns: Columns::new(plan, BatchLimit::new(ROWS, budget, 1)), to, _memory: memory })
    }

    fn write(&mut self) -> io::Result<()> {
        let rows = self.columns.take().map_err(of_arrow)?;
        self.to.write(&rows)
    }
}

impl<W: ColumnWriter> Exporter for ColumnFile<W> {
    fn sample(&mut self, event: usize, sample: &Sample<'_>, context: &Context) -> io::Result<()> {
        self.columns.append(&[Row { event, record: sample.record }], context).map_err(of_arrow)?;
        if self.columns.room() == 0 { self.write() } else { Ok(()) }
    }

    fn finish(mut self, _: &Context, partial: Option<&Partial>) -> io::Result<()> {
        if !self.columns.is_empty() {
            self.write()?;
        }
        self.to.finish(partial.map(Partial::text).as_deref())
    }
}

impl<'a> Parquet<'a> {
    /// Creates the writer, and writes the start of the file.
    pub fn open(to: &'a mut Destination, schema: &SchemaRef, budget: &Budget) -> io::Result<Parquet<'a>> {
        // Parquet files also contain the metadata in the Arrow schema, but not all programs read this schema. It is written at
        // the end, because it also says what is missing.
        let metadata = schema.metadata().iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        let properties = WriterProperties::builder()
            .set_key_value_metadata(Some(metadata.collect()))
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(GROUP))
            .set_created_by(concat!("perf-prof ", env!("CARGO_PKG_VERSION")).to_owned());
        let options = ArrowWriterOptions::new().with_properties(properties.build()).with_skip_arrow_metadata(true);
        let to = ArrowWriter::try_new_with_options(to, schema.clone(), options).map_err(of_parquet)?;
        Ok(Parquet { to, schema: schema.clone(), group_bytes: GROUP_BYTES.min(budget.share() / 2) })
    }
}

impl ColumnWriter for Parquet<'_> {
    fn write(&mut self, rows: &RecordBatch) -> io::Result<()> {
        self.to.write(rows).map_err(of_parquet)?;
        if self.to.memory_size() < self.group_bytes { Ok(()) } else { self.to.flush().map_err(of_parquet) }
    }

    fn finish(mut self, partial: Option<&str>) -> io::Result<()> {
        let mut metadata = self.schema.metadata().clone();
        if let Some(partial) = partial {
            metadata.insert(PARTIAL.to_owned(), partial.to_owned());
            self.to.append_key_value_metadata(KeyValue::new(PARTIAL.to_owned(), partial.to_owned()));
        }
        let schema = encode_arrow_schema(&self.schema.as_ref().clone().with_metadata(metadata));
        self.to.append_key_value_metadata(KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), schema));
        self.to.close().map(|_| ()).map_err(of_parquet)
    }
}

/// Returns the I/O error in an Arrow error, so that a closed pipe can be distinguished from other errors.
pub fn of_arrow(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        other => io::Error::other(other),
    }
}

fn of_parquet(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}
