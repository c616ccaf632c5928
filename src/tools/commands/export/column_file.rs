//! Files of columns: Parquet, and the file format of Arrow.

use std::io;

use arrow_array::{ArrayRef, RecordBatch, cast::AsArray, types::Int32Type};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use arrow_select::take::take;
use parquet::{arrow::ArrowWriter, basic::Compression, errors::ParquetError, file::properties::WriterProperties};
use perf_prof_events::{
    column::{Columns, Plan, Row},
    event::{Context, Sample},
};

use super::{Destination, Exporter};

/// The number of rows that are written together. Only this many rows are in memory at a time.
const ROWS: usize = 1 << 16;
/// The number of rows of a row group of Parquet. Readers skip and read whole groups.
const GROUP: usize = 1 << 18;

/// A file of columns.
pub struct ColumnFile<W> {
    columns: Columns,
    to: W,
}

/// A file that batches of columns are written to.
pub trait ColumnWriter: Sized {
    /// Writes rows.
    fn write(&mut self, rows: &RecordBatch) -> io::Result<()>;
    /// Writes the end of the file.
    fn finish(self) -> io::Result<()>;
}

/// A Parquet file.
pub struct Parquet<'a>(ArrowWriter<&'a mut Destination>);

/// A file in the file format of Arrow. Text is not encoded as a dictionary, because all batches of a file would have to
/// share one dictionary.
pub struct Arrow<'a> {
    to: FileWriter<&'a mut Destination>,
    schema: SchemaRef,
}

impl<W: ColumnWriter> ColumnFile<W> {
    /// Creates a file with the columns of a plan.
    pub fn new(plan: Plan, open: impl FnOnce(&SchemaRef) -> io::Result<W>) -> io::Result<ColumnFile<W>> {
        let to = open(&plan.schema)?;
        Ok(ColumnFile { columns: Columns::new(plan, ROWS), to })
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

    fn finish(mut self) -> io::Result<()> {
        if !self.columns.is_empty() {
            self.write()?;
        }
        self.to.finish()
    }
}

impl<'a> Parquet<'a> {
    /// Writes the start of the file.
    pub fn open(to: &'a mut Destination, schema: &SchemaRef) -> io::Result<Parquet<'a>> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(GROUP))
            .set_created_by(concat!("perf-prof ", env!("CARGO_PKG_VERSION")).to_owned());
        ArrowWriter::try_new(to, schema.clone(), Some(properties.build())).map(Parquet).map_err(of_parquet)
    }
}

impl ColumnWriter for Parquet<'_> {
    fn write(&mut self, rows: &RecordBatch) -> io::Result<()> {
        self.0.write(rows).map_err(of_parquet)
    }

    fn finish(self) -> io::Result<()> {
        self.0.close().map(|_| ()).map_err(of_parquet)
    }
}

impl<'a> Arrow<'a> {
    /// Writes the start of the file.
    pub fn open(to: &'a mut Destination, schema: &SchemaRef) -> io::Result<Arrow<'a>> {
        let plain = |field: &Field| match field.data_type() {
            DataType::Dictionary(_, values) => Field::new(field.name(), (**values).clone(), field.is_nullable()),
            _ => field.clone(),
        };
        let fields: Vec<Field> = schema.fields().iter().map(|field| plain(field)).collect();
        let schema = SchemaRef::new(Schema::new(fields));
        Ok(Arrow { to: FileWriter::try_new(to, &schema).map_err(of_arrow)?, schema })
    }
}

impl ColumnWriter for Arrow<'_> {
    fn write(&mut self, rows: &RecordBatch) -> io::Result<()> {
        let plain = |column: &ArrayRef| match column.as_dictionary_opt::<Int32Type>() {
            Some(dictionary) => take(dictionary.values(), dictionary.keys(), None),
            None => Ok(column.clone()),
        };
        let columns = rows.columns().iter().map(plain).collect::<Result<_, _>>().map_err(of_arrow)?;
        let rows = RecordBatch::try_new(self.schema.clone(), columns).map_err(of_arrow)?;
        self.to.write(&rows).map_err(of_arrow)
    }

    fn finish(mut self) -> io::Result<()> {
        self.to.finish().map_err(of_arrow)
    }
}

/// Returns the I/O error, so that a closed pipe can be distinguished from other errors.
fn of_arrow(error: ArrowError) -> io::Error {
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
