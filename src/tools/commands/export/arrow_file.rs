//! A file in the file format of Arrow, compressed and with a dictionary for each column of text.
//!
//! All rows of a file share the dictionaries, whose texts are only known at the end. The format allows a dictionary
//! after the rows that use it (<https://arrow.apache.org/docs/format/Columnar.html#ipc-file-format>). The library's
//! file writer cannot write it there, so this module writes the messages, the dictionaries and then the footer.
//!
//! Texts stay in memory until the dictionaries are written. If the texts become too large, they are written before and
//! dropped, and later texts extend the dictionaries (`isDelta`). If a dropped text occurs again, its dictionary contains it
//! twice.

use std::{
    collections::HashMap,
    io::{self, Write},
    sync::Arc,
};

use arrow_array::{ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray, cast::AsArray, types::Int32Type};
use arrow_ipc::{
    Block, CompressionType, FooterBuilder, MetadataVersion,
    convert::IpcSchemaEncoder,
    writer::{
        DictionaryHandling, DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteContext, IpcWriteOptions,
        write_message,
    },
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use flatbuffers::FlatBufferBuilder;
use perf_prof_system::budget::Budget;

use super::{
    Destination,
    column_file::{ColumnWriter, GROUP_BYTES, PARTIAL, of_arrow},
};

const MAGIC: &[u8] = b"ARROW1";
/// The start of the file. It is padded, because messages begin at multiples of 64 bytes, as in files of the library's
/// writer.
const HEADER: [u8; 64] = {
    let mut header = [0; 64];
    let mut at = 0;
    while at < MAGIC.len() {
        header[at] = MAGIC[at];
        at += 1;
    }
    header
};
/// The end of the messages: a continuation marker, and the length 0.
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// The file.
pub struct ArrowFile<'a> {
    to: &'a mut Destination,
    schema: SchemaRef,
    /// The schema of the rows in the file. A column of text is replaced by a column of indexes into its dictionary.
    indexes: SchemaRef,
    options: IpcWriteOptions,
    context: IpcWriteContext,
    dictionaries: DictionaryTracker,
    /// The texts of each column with a dictionary.
    texts: Vec<Option<Texts>>,
    /// The texts in memory are written to the file and dropped when they take more than this many bytes.
    text_bytes: usize,
    /// The positions of the dictionaries in the file.
    written: Vec<Block>,
    /// The offset of the next message in the file, in bytes.
    offset: usize,
    rows: Vec<Block>,
}

/// The texts of a column, each once.
#[derive(Default)]
struct Texts {
    indexes: HashMap<Arc<str>, i32>,
    /// The texts in memory, in the order of their indexes.
    texts: Vec<Arc<str>>,
    /// The number of texts that were written and dropped, which is also the index of the first text in `texts`.
    written: usize,
    /// An estimate of the memory that `texts` and `indexes` take, in bytes.
    bytes: usize,
}

impl Texts {
    /// Converts the indexes of a column from its batch's dictionary to the dictionary of the file.
    fn indexes(&mut self, column: &ArrayRef) -> Result<Int32Array, ArrowError> {
        let column = column.as_dictionary::<Int32Type>();
        let texts = column.values().as_string::<i32>();
        let own = texts.iter().map(|text| self.index(text.unwrap_or_default())).collect::<Result<Vec<i32>, _>>()?;
        Ok(column.keys().iter().map(|key| key.and_then(|key| own.get(key as usize).copied())).collect())
    }

    fn index(&mut self, text: &str) -> Result<i32, ArrowError> {
        if let Some(&index) = self.indexes.get(text) {
            return Ok(index);
        }
        let index =
            i32::try_from(self.written + self.texts.len()).map_err(|_| ArrowError::DictionaryKeyOverflowError)?;
        let text: Arc<str> = text.into();
        self.bytes += size_of::<Arc<str>>() * 4 + text.len();
        self.texts.push(text.clone());
        self.indexes.insert(text, index);
        Ok(index)
    }

    /// Returns the texts that were not written yet, and drops them.
    fn take(&mut self) -> StringArray {
        let texts = self.texts.iter().map(|text| Some(&**text)).collect();
        *self = Texts { written: self.written + self.texts.len(), ..Texts::default() };
        texts
    }
}

impl<'a> ArrowFile<'a> {
    /// Creates the file object, and writes the start of the file.
    pub fn open(to: &'a mut Destination, schema: &SchemaRef, budget: &Budget) -> io::Result<ArrowFile<'a>> {
        let is_text = |field: &Field| matches!(field.data_type(), DataType::Dictionary(..));
        let of_indexes = |field: &Field| match is_text(field) {
            true => Field::new(field.name(), DataType::Int32, field.is_nullable()),
            false => field.clone(),
        };
        let fields: Vec<Field> = schema.fields().iter().map(|field| of_indexes(field)).collect();
        let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD)).map_err(of_arrow)?;
        let mut file = ArrowFile {
            to,
            schema: schema.clone(),
            indexes: Arc::new(Schema::new(fields)),
            options,
            context: IpcWriteContext::default(),
            dictionaries: DictionaryTracker::new(true),
            texts: schema.fields().iter().map(|field| is_text(field).then(Texts::default)).collect(),
            text_bytes: GROUP_BYTES.min(budget.share() / 4),
            written: Vec::new(),
            offset: HEADER.len(),
            rows: Vec::new(),
        };
        file.to.write_all(&HEADER)?;
        let (generator, options) = (IpcDataGenerator::default(), &file.options);
        let message = generator.schema_to_bytes_with_dictionary_tracker(schema, &mut file.dictionaries, options);
        file.message(message)?;
        Ok(file)
    }

    /// Writes a message. Returns the position of the message in the file.
    fn message(&mut self, message: EncodedData) -> io::Result<Block> {
        let (head, body) = write_message(&mut *self.to, message, &self.options).map_err(of_arrow)?;
        let block = Block::new(self.offset as i64, head as i32, body as i64);
        self.offset += head + body;
        Ok(block)
    }

    /// Writes the texts that are in memory, and drops them.
    fn write_dictionaries(&mut self) -> io::Result<()> {
        let is_first = self.written.is_empty();
        let mut dictionaries = DictionaryTracker::new(false);
        let options = self.options.clone().with_dictionary_handling(DictionaryHandling::Delta);
        let generator = IpcDataGenerator::default();
        generator.schema_to_bytes_with_dictionary_tracker(&self.schema, &mut dictionaries, &options);
        let mut columns = Vec::new();
        for (field, texts) in self.schema.fields().iter().zip(&mut self.texts) {
            let Some(texts) = texts else {
                columns.push(arrow_array::new_empty_array(field.data_type()));
                continue;
            };
            columns.push(dictionary(texts.take()).map_err(of_arrow)?);
        }
        if !is_first {
            // The file already contains dictionaries. The encoder first gets empty dictionaries, so that it marks the
            // new texts as extensions (`isDelta`).
            let empty = dictionary(StringArray::new_null(0)).map_err(of_arrow)?;
            for id in 0..self.texts.iter().flatten().count() {
                dictionaries.insert_column(id as i64, &empty, DictionaryHandling::Delta).map_err(of_arrow)?;
            }
        }
        let none = RecordBatch::try_new(self.schema.clone(), columns).map_err(of_arrow)?;
        let encoded = generator.encode(&none, &mut dictionaries, &options, &mut self.context);
        for message in encoded.map_err(of_arrow)?.0 {
            let block = self.message(message)?;
            self.written.push(block);
        }
        Ok(())
    }
}

/// Returns a column without rows, with a dictionary of these texts.
fn dictionary(texts: StringArray) -> Result<ArrayRef, ArrowError> {
    Ok(Arc::new(DictionaryArray::try_new(Int32Array::new_null(0), Arc::new(texts))?))
}

impl ColumnWriter for ArrowFile<'_> {
    fn write(&mut self, rows: &RecordBatch) -> io::Result<()> {
        let columns = rows.columns().iter().zip(&mut self.texts).map(|(column, texts)| match texts {
            Some(texts) => Ok(Arc::new(texts.indexes(column)?) as ArrayRef),
            None => Ok(column.clone()),
        });
        let columns = columns.collect::<Result<_, ArrowError>>().map_err(of_arrow)?;
        let rows = RecordBatch::try_new(self.indexes.clone(), columns).map_err(of_arrow)?;
        // The rows contain indexes, and no column is a dictionary.
        let mut none = DictionaryTracker::new(false);
        let encoded = IpcDataGenerator::default().encode(&rows, &mut none, &self.options, &mut self.context);
        let block = self.message(encoded.map_err(of_arrow)?.1)?;
        self.rows.push(block);
        match self.texts.iter().flatten().map(|texts| texts.bytes).sum::<usize>() > self.text_bytes {
            true => self.write_dictionaries(),
            false => Ok(()),
        }
    }

    fn finish(mut self, partial: Option<&str>) -> io::Result<()> {
        self.write_dictionaries()?;
        self.to.write_all(&END)?;
        let mut metadata = self.schema.metadata().clone();
        metadata.extend(partial.map(|partial| (PARTIAL.to_owned(), partial.to_owned())));
        let schema = self.schema.as_ref().clone().with_metadata(metadata);
        let mut footer = FlatBufferBuilder::new();
        let (dictionaries, rows) = (footer.create_vector(&self.written), footer.create_vector(&self.rows));
        self.dictionaries.clear();
        let mut encoder = IpcSchemaEncoder::new().with_dictionary_tracker(&mut self.dictionaries);
        let schema = encoder.schema_to_fb_offset(&mut footer, &schema);
        let mut builder = FooterBuilder::new(&mut footer);
        builder.add_version(MetadataVersion::V5);
        builder.add_schema(schema);
        builder.add_dictionaries(dictionaries);
        builder.add_recordBatches(rows);
        let root = builder.finish();
        footer.finish(root, None);
        let footer = footer.finished_data();
        self.to.write_all(footer)?;
        self.to.write_all(&(footer.len() as i32).to_le_bytes())?;
        self.to.write_all(MAGIC)
    }
}
