//! The events of spans: their format, their records and their counts.
//!
//! A span is delivered as a record, in the layout of the span's own event type. The record has the time and the CPU of the
//! end, and also the task of the end, unless the definition names another task. Its raw data looks like that of a
//! tracepoint: `duration`, `open` and the fields of the span, which are decoded like the fields of any event. The whole
//! records of the begin, of the end, and of the samples between them follow. So a copy of the record contains the whole
//! span. `begin` and `end` are events of their own types.
//!
//! The call chain is not copied: it is resolved from the record that contains it. A record has at most 64 KiB. If the begin
//! and the end are larger together, the ends of their records are cut off. Copies of user stacks are at the ends of
//! records. A stack that is cut off is not unwound: the chain has only the recorded frames.

mod counts;
mod field;
mod incomplete;
mod view;

use std::sync::Arc;

use perf_prof_format::{
    abi::{
        PERF_RECORD_SAMPLE, PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_CGROUP, PERF_SAMPLE_CPU, PERF_SAMPLE_RAW,
        PERF_SAMPLE_STACK_USER, PERF_SAMPLE_TID, PERF_SAMPLE_TIME,
    },
    record::SampleLayout,
    spec::OpenAtEnd,
    tracefs::{EventFormat, Filter, FormatError, NUMBER_IF_KNOWN, UNKNOWN_NUMBER, USER_TEXT},
};

use self::field::SpanValue;
pub use self::{
    counts::SpanCounts,
    field::{ComputeField, Origin, SpanField, SpanFieldKind, SpanFieldSource},
    incomplete::{IdleEvents, Incomplete, TaskGaps},
    view::{PartView, SpanNote, SpanView, notes},
};
use super::{Context, EventType, Sample};

/// The field of all spans that holds the time from the begin to the end, in ns.
pub const DURATION_FIELD: &str = "duration";
/// Offsets in the raw data of a span, in bytes. The raw data starts with the common fields (8 bytes).
const DURATION: usize = 8;
const OPEN: usize = 16;
/// The offset of the indexes of the begin event and the end event, 2 bytes each.
const EVENTS: usize = 20;
/// The offset of two 4-byte words: one for the record of the begin, one for the record of the end. The lower half of a word
/// is the offset of the record, and the upper half its size.
const RECORDS: usize = 24;
/// The offset of a word of the same form as at `RECORDS`: it has the offset and the size of the list of samples between the
/// begin and the end.
const NOTES: usize = 32;
/// The offset of the span's fields, 8 bytes each.
const FIELDS: usize = 40;

/// The maximum size of a field's text, in bytes. It is limited because all texts of a span share one record.
const LONGEST: usize = 4096;

/// The maximum size of a record, in bytes: the largest multiple of 8 that fits into the 16 bits of a header.
const LARGEST: usize = 0xfff8;

/// The system in the names of span events, such as `span:fsync`.
pub const SPAN_SYSTEM: &str = "span";

/// The format of a span event.
#[derive(Clone, Debug)]
pub struct SpanFormat {
    /// The format of the raw data, as for a tracepoint: `duration`, `open`, and then the fields in `fields`.
    pub format: Arc<EventFormat>,
    /// The event types whose samples begin, end or belong to the spans.
    pub inputs: Vec<EventType>,
    /// The sample that provides the call chain of the span.
    pub chain: SpanPart,
    /// Which task the span belongs to.
    pub task: SpanTask,
    /// The fields besides `duration` and `open`.
    pub fields: Vec<SpanField>,
    /// The conditions that a span must meet to be delivered, as the user typed them. Empty if there are none.
    pub conditions: String,
    /// What happens to the spans that are open at the end of the run.
    pub at_end: OpenAtEnd,
    /// The fields that the option `str` would add.
    pub with_strings: Vec<String>,
}

/// Which task a span belongs to: its `_pid` and `_tid`.
#[derive(Clone, Copy, Debug, Default)]
pub enum SpanTask {
    /// The task in which the span ended.
    #[default]
    OfEnd,
    /// The task in which the span ended. The span only interrupted this task. So a span that interrupted perf-prof does not
    /// count as perf-prof's own.
    Interrupted,
    /// The task in which the span began.
    OfBegin,
    /// The task in which the span began. If this task had exited by then, the thread whose id is the first number of the
    /// key: the sample of a task that has exited has the ids -1 (`perf_event_pid_type()` in kernel/events/core.c).
    OfBeginOrKey,
    /// The thread whose id is the first number of the key. `_pid` is -1 if the process of the thread is unknown.
    OfKey,
    /// For an ended span, the task in which it ended. For an open span, and if this task had exited by then, the thread whose
    /// id is the first number of the key.
    OfEndOrKey,
    /// The task in which a kept sample of the tracepoint with this name happened. If the span has kept no such sample, or
    /// if the sample happened in an interrupt: the task in which the span ended.
    OfNoted(&'static str),
    /// The process and the thread that a function returns. Both are -1 if the function returns `None`.
    Computed(fn(&SpanView<'_>) -> Option<(i32, i32)>),
}

/// A sample of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanPart {
    /// The sample that begins the span.
    Begin,
    /// The sample that ends the span.
    End,
}

/// A field in the raw data of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanFieldAt {
    /// The field `duration`.
    Duration,
    /// The field `open`.
    Open,
    /// A field of the span, with its index in [`SpanFormat::fields`].
    Field(usize),
}

/// The samples of a span, and what else its fields are computed from.
#[derive(Clone, Copy, Debug)]
pub struct SpanSamples<'a> {
    /// The index of the event that begins the span, and its record.
    pub begin: (usize, &'a [u8]),
    /// The index of the event that ends the span, and its record. `None` if the span is still open.
    pub end: Option<(usize, &'a [u8])>,
    /// The samples between the begin and the end, encoded for [`notes`].
    pub notes: &'a [u8],
    /// The numbers of the key, if it has one or two. A missing number is 0, and so are both numbers of any other key.
    pub key: [u64; 2],
    /// The time from the begin to the end in ns.
    pub duration: u64,
    /// The threads that ran during the span on the CPU on which it ended, the longest time first. `None` if they were not
    /// observed.
    pub ran: Option<&'a [Ran]>,
}

/// A thread that ran on a CPU, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Its name.
    pub comm: Box<[u8]>,
    /// Its id.
    pub tid: i64,
    /// How long it ran, in ns.
    pub time: u64,
}

impl SpanFormat {
    /// Creates the format of the spans called `name`. `system` is the part before the colon in the event's name; empty for a
    /// source.
    pub fn new(
        (system, name): (&str, &str),
        inputs: Vec<EventType>,
        chain: SpanPart,
        task: SpanTask,
        fields: Vec<SpanField>,
    ) -> Result<Self, FormatError> {
        let mut text = format!(
            "name: {name}\nID: 0\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
             \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
             \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
             \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
             \tfield:u64 duration;\toffset:{DURATION};\tsize:8;\tsigned:0;\n\
             \tfield:bool open;\toffset:{OPEN};\tsize:1;\tsigned:0;\n"
        );
        let (mut print, mut arguments) = (String::new(), String::new());
        for (at, SpanField { name, kind, .. }) in fields.iter().enumerate() {
            let offset = FIELDS + 8 * at;
            let (c_type, size, signed, form, argument) = match kind {
                SpanFieldKind::Text => ("__data_loc char[]", 4, 0, "%s", format!("__get_str({name})")),
                // Lines do not show this field, because most spans have no value for it.
                SpanFieldKind::UserText => {
                    text += &format!("\tfield:{USER_TEXT} {name};\toffset:{offset};\tsize:4;\tsigned:0;\n");
                    continue;
                }
                SpanFieldKind::Words => {
                    text +=
                        &format!("\tfield:__data_loc unsigned long[] {name};\toffset:{offset};\tsize:4;\tsigned:0;\n");
                    let word =
                        format!("__print_array(__get_dynamic_array({name}), __get_dynamic_array_len({name}) / 8, 8)");
                    print += &format!(" {name}=%s");
                    arguments += &format!(", {word}");
                    continue;
                }
                SpanFieldKind::Int => ("s64", 8, 1, "%lld", format!("REC->{name}")),
                SpanFieldKind::Uint | SpanFieldKind::Time => ("u64", 8, 0, "%llu", format!("REC->{name}")),
                SpanFieldKind::TimeIfKnown => (NUMBER_IF_KNOWN, 8, 0, "%llu", format!("REC->{name}")),
                SpanFieldKind::Address => ("u64", 8, 0, "0x%llx", format!("REC->{name}")),
            };
            text += &format!("\tfield:{c_type} {name};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n");
            print += &format!(" {name}={form}");
            arguments += &format!(", {argument}");
        }
        text += &format!(
            "\nprint fmt: \"%llu.%06llu ms%s{print}\", REC->duration / 1000000, REC->duration % 1000000, \
             REC->open ? \" (open)\" : \"\"{arguments}\n"
        );
        Ok(SpanFormat {
            format: Arc::new(EventFormat::parse(system, &text)?.with_words()),
            inputs,
            chain,
            task,
            fields,
            conditions: String::new(),
            at_end: OpenAtEnd::default(),
            with_strings: Vec::new(),
        })
    }

    /// Sets the text of the conditions that a span must meet to be delivered, and what happens to open spans at the end.
    pub fn with_conditions(self, conditions: &str, at_end: OpenAtEnd) -> Self {
        Self { conditions: conditions.to_owned(), at_end, ..self }
    }

    /// Sets the fields that the option `str` would add.
    pub fn with_strings(self, with_strings: Vec<String>) -> Self {
        Self { with_strings, ..self }
    }

    /// Returns the name of the event, such as `span:fsync`. For a source, this is the source's name.
    pub fn name(&self) -> String {
        match &*self.format.system {
            "" => self.format.name.to_string(),
            system => format!("{system}:{}", self.format.name),
        }
    }

    /// Returns the description of a source's field. Empty for a field of other spans.
    pub fn about(&self, field: &str) -> &'static str {
        let of_spans = [("duration", "ns from its begin to its end"), ("open", "True if it has not ended")];
        let own = self.fields.iter().find(|own| own.name == field).map(|own| own.about);
        own.or_else(|| {
            of_spans.into_iter().find(|(name, _)| *name == field && self.is_source()).map(|(_, about)| about)
        })
        .unwrap_or("")
    }

    /// Returns whether this is a built-in source, such as `offcpu`. Lines do not show the begin and end events of a source,
    /// because its fields say everything about its spans.
    pub fn is_source(&self) -> bool {
        &*self.format.system != SPAN_SYSTEM
    }

    /// Returns the layout of the records. They contain a call chain if the sample that provides it has one, and a cgroup if
    /// the samples have cgroups.
    pub fn layout(&self) -> SampleLayout {
        let has_chain =
            |input: &EventType| input.layout.format.sample_type & (PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_STACK_USER) != 0;
        let chain = if self.inputs.iter().any(has_chain) { PERF_SAMPLE_CALLCHAIN } else { 0 };
        let has_cgroup = self.inputs.iter().any(|input| input.layout.has_cgroup());
        let cgroup = if has_cgroup { PERF_SAMPLE_CGROUP } else { 0 };
        let members = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_RAW;
        SampleLayout::new(members | chain | cgroup, 0)
    }

    /// Returns the span as the functions that compute fields see it.
    pub fn view<'a>(&'a self, span: &SpanSamples<'a>, context: Option<&'a Context>) -> SpanView<'a> {
        SpanView::new(&self.inputs, *span, context)
    }

    /// Returns the process and the thread that a span belongs to.
    fn task(&self, view: &SpanView<'_>) -> (i32, i32) {
        let or_key = |part: Option<PartView<'_>>| match part {
            Some(part) if part.tid() >= 0 => (part.pid(), part.tid()),
            _ => view.task(view.key(0) as i32),
        };
        match self.task {
            SpanTask::OfEnd | SpanTask::Interrupted => (view.last().pid(), view.last().tid()),
            SpanTask::OfBegin => (view.begin().pid(), view.begin().tid()),
            SpanTask::OfKey => view.task(view.key(0) as i32),
            SpanTask::OfBeginOrKey => or_key(Some(view.begin())),
            SpanTask::OfEndOrKey => or_key(view.end()),
            SpanTask::OfNoted(name) => {
                let task = view.noted_in_task(name).unwrap_or_else(|| view.last());
                (task.pid(), task.tid())
            }
            SpanTask::Computed(task) => task(view).unwrap_or((-1, -1)),
        }
    }

    /// Returns whether the samples of a span do not say which task it belongs to.
    pub fn lacks_task(&self, span: &SpanSamples<'_>) -> bool {
        matches!(self.task, SpanTask::Computed(task) if task(&self.view(span, None)).is_none())
    }

    /// Returns whether a function says which task a span belongs to. It may be known of no sample.
    pub fn is_task_computed(&self) -> bool {
        matches!(self.task, SpanTask::Computed(_))
    }

    /// Returns the thread that a span belongs to. Never looks up the process, in contrast to `task`.
    pub fn thread(&self, span: &SpanSamples<'_>) -> i32 {
        let view = self.view(span, None);
        match self.task {
            SpanTask::OfKey => view.key(0) as i32,
            _ => self.task(&view).1,
        }
    }

    /// Returns whether a span only interrupted its task.
    pub fn is_interrupted(&self, span: &SpanSamples<'_>) -> bool {
        match self.task {
            SpanTask::Interrupted => true,
            SpanTask::OfNoted(name) => self.view(span, None).noted_in_task(name).is_none(),
            _ => false,
        }
    }

    /// Returns, for each field of the span, whether the filter reads it.
    pub fn fields_of(&self, filter: &Filter) -> Vec<bool> {
        (0..self.fields.len()).map(|at| filter.reads(FIELDS + 8 * at)).collect()
    }

    /// Returns whether the field at this offset of the raw data is known when a span begins. The name of the task counts as
    /// known, because few tasks get another name during a span.
    pub fn is_known_at_begin(&self, offset: usize) -> bool {
        use Origin::{Begin, BeginBits, Comm, Key};
        let Some(SpanFieldAt::Field(at)) = self.field_at(offset) else { return false };
        self.fields.get(at).is_some_and(|field| {
            matches!(field.origin, Some(Key(_) | Begin(_) | BeginBits(..) | Comm))
                || matches!(field.source, SpanFieldSource::Begin(_))
        })
    }

    /// Returns whether the end of a span alone shows the value of the field with this index.
    pub fn is_known_at_end(&self, field: usize) -> bool {
        use Origin::{End, EndBits, Key};
        self.fields.get(field).is_some_and(|field| matches!(field.origin, Some(Key(_) | End(_) | EndBits(..))))
    }

    /// Returns the texts and patterns in a filter, each with the index of the field that the filter compares with it.
    pub fn texts_of<'a>(&self, filter: &'a Filter) -> Vec<(usize, &'a str)> {
        let texts = filter.texts().into_iter();
        texts.filter_map(|(offset, text)| Some((offset.checked_sub(FIELDS)? / 8, text))).collect()
    }

    /// Returns the index of the only field that a filter reads, if this field is the text of a number, such as the name of a
    /// system call.
    pub fn text_of_number(&self, filter: &Filter) -> Option<usize> {
        let at = filter.only_place()?.checked_sub(FIELDS)? / 8;
        let is_such =
            |field: &SpanField| matches!(field.source, SpanFieldSource::Computed(ComputeField::TextOfNumber(..)));
        self.fields.get(at).is_some_and(is_such).then_some(at)
    }

    /// Returns the number of a span from which the text in this field is made. Returns `None` if the field is not a text of
    /// a number.
    pub fn number_of_text(&self, at: usize, span: &SpanSamples<'_>, context: Option<&Context>) -> Option<i64> {
        match self.fields.get(at)?.source {
            SpanFieldSource::Computed(ComputeField::TextOfNumber(number, _)) => Some(number(&self.view(span, context))),
            _ => None,
        }
    }

    /// Returns the text that this field shows for `number`. Returns `None` if the field is not a text of a number. `context`
    /// knows the names of addresses.
    pub fn text_for_number(&self, at: usize, number: i64, context: Option<&Context>) -> Option<Vec<u8>> {
        let SpanFieldSource::Computed(ComputeField::TextOfNumber(_, text)) = self.fields.get(at)?.source else {
            return None;
        };
        let nothing = SpanSamples { begin: (0, &[]), end: None, notes: &[], key: [0; 2], duration: 0, ran: None };
        Some(text(&self.view(&nothing, context), number).into_owned())
    }

    /// Returns the field at this offset in the raw data; `None` if no field starts there.
    pub fn field_at(&self, offset: usize) -> Option<SpanFieldAt> {
        match offset {
            DURATION => Some(SpanFieldAt::Duration),
            OPEN => Some(SpanFieldAt::Open),
            _ => Some(SpanFieldAt::Field(offset.checked_sub(FIELDS)? / 8))
                .filter(|_| (offset - FIELDS).is_multiple_of(8)),
        }
    }

    /// Returns whether one of the wanted fields is text.
    pub fn has_text(&self, wanted: &[bool]) -> bool {
        self.fields.iter().zip(wanted).any(|(field, wanted)| *wanted && field.kind == SpanFieldKind::Text)
    }

    /// Writes the raw data of a span to `out`, without the records of its samples. Clears `out` first. Computes only the
    /// fields for which `wanted` is true.
    pub fn write_for_filter(
        &self,
        span: &SpanSamples<'_>,
        wanted: &[bool],
        context: Option<&Context>,
        out: &mut Vec<u8>,
    ) {
        out.clear();
        let (of, record) = span.end.unwrap_or(span.begin);
        let Some(last) = self.inputs.get(of).map(|event| Sample { event, record }) else { return };
        self.write_fields(
            &last,
            &self.view(span, context),
            span,
            |at| wanted.get(at).is_some_and(|wanted| *wanted),
            out,
        );
    }

    /// Writes the record of a span to `out`. Clears `out` first. The record gets the time and the CPU of the end, and the
    /// current cgroup of the task. If the records of the begin and the end are too large together, the ends of both records
    /// are cut off. Copies of user stacks are at these ends.
    ///
    /// `context` knows the names of tasks and the architecture of the recording. Without it, fields that need these are
    /// empty.
    pub fn write(&self, layout: &SampleLayout, span: &SpanSamples<'_>, context: Option<&Context>, out: &mut Vec<u8>) {
        let (of, record) = span.end.unwrap_or(span.begin);
        let Some(last) = self.inputs.get(of).map(|event| Sample { event, record }) else { return };
        out.clear();
        out.extend(PERF_RECORD_SAMPLE.to_ne_bytes());
        out.extend_from_slice(record.get(4..6).unwrap_or(&[0, 0]));
        out.extend([0, 0]);
        let (pid, tid) = self.task(&self.view(span, context));
        out.extend(pid.to_ne_bytes());
        out.extend(tid.to_ne_bytes());
        out.extend(last.time().to_ne_bytes());
        out.extend(last.cpu().to_ne_bytes());
        out.extend([0; 4]);
        if layout.format.sample_type & PERF_SAMPLE_CALLCHAIN != 0 {
            out.extend(0u64.to_ne_bytes());
        }
        out.extend([0; 4]);
        let start = out.len();
        self.write_fields(&last, &self.view(span, context), span, |_| true, out);
        let room = LARGEST.saturating_sub(out.len() + 16);
        let notes = if span.notes.len() <= room / 4 { span.notes } else { &[] };
        let room = room - notes.len();
        let (begin, end) = (span.begin.1, span.end.map_or(&[][..], |(_, record)| record));
        let of_end = end.len().min(room.saturating_sub(begin.len()).max(room / 2)) & !7;
        let of_begin = begin.len().min(room - of_end) & !7;
        for (at, bytes) in [(RECORDS, &begin[..of_begin]), (RECORDS + 4, &end[..of_end]), (NOTES, notes)] {
            // Each record in the raw data starts at a multiple of 8 bytes.
            out.resize(start + (out.len() - start).next_multiple_of(8), 0);
            let place = (out.len() - start) as u32 | (bytes.len() as u32) << 16;
            let first = out.len();
            out.extend_from_slice(bytes);
            if at != NOTES && bytes.len() >= 8 {
                put(out, first + 6, &(bytes.len() as u16).to_ne_bytes());
            }
            put(out, start + at, &place.to_ne_bytes());
        }
        // Pad the raw data. Together with the 4 bytes of its size, it must be a multiple of 8 bytes.
        let end = (out.len() - start + 4).next_multiple_of(8) - 4;
        out.resize(start + end, 0);
        put(out, start - 4, &(end as u32).to_ne_bytes());
        if layout.has_cgroup() {
            let cgroup = context.map_or(0, |context| context.cgroup_of_task(tid));
            out.extend(cgroup.to_ne_bytes());
        }
        let size = out.len() as u16;
        put(out, 6, &size.to_ne_bytes());
    }

    /// Writes the raw data up to the records. Fields that are not wanted are 0.
    fn write_fields(
        &self,
        last: &Sample<'_>,
        view: &SpanView<'_>,
        span: &SpanSamples<'_>,
        is_wanted: impl Fn(usize) -> bool,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        out.resize(start + FIELDS + 8 * self.fields.len(), 0);
        put(out, start, last.raw().get(..DURATION).unwrap_or(&[]));
        put(out, start + DURATION, &span.duration.to_ne_bytes());
        put(out, start + OPEN, &[u8::from(span.end.is_none())]);
        let end = span.end.map_or(u16::MAX, |(event, _)| event as u16);
        put(out, start + EVENTS, &(span.begin.0 as u16).to_ne_bytes());
        put(out, start + EVENTS + 2, &end.to_ne_bytes());
        for (at, field) in self.fields.iter().enumerate().filter(|&(at, _)| is_wanted(at)) {
            let value = match (field.kind, field.value(view)) {
                (kind @ (SpanFieldKind::Text | SpanFieldKind::UserText | SpanFieldKind::Words), value) => {
                    let bytes = match &value {
                        Some(SpanValue::Bytes(bytes)) => bytes.get(..LONGEST).unwrap_or(bytes),
                        _ => &[],
                    };
                    // A text ends with a NUL. A missing text has no bytes at all.
                    let is_absent = kind == SpanFieldKind::UserText && value.is_none();
                    let nul = usize::from(kind != SpanFieldKind::Words && !is_absent);
                    let place = (out.len() - start) as u32 | ((bytes.len() + nul) as u32) << 16;
                    out.extend_from_slice(bytes);
                    out.resize(out.len() + nul, 0);
                    let [a, b, c, d] = place.to_ne_bytes();
                    [a, b, c, d, 0, 0, 0, 0]
                }
                (_, Some(SpanValue::Int(value))) => value.to_ne_bytes(),
                (_, Some(SpanValue::Uint(value))) => value.to_ne_bytes(),
                (SpanFieldKind::TimeIfKnown, _) => UNKNOWN_NUMBER.to_ne_bytes(),
                _ => [0; 8],
            };
            put(out, start + FIELDS + 8 * at, &value);
        }
    }

    /// Returns a part of the span with this raw data: the index of its event type, and its record. Returns `None` for the
    /// end of an open span, and if the raw data is damaged.
    #[inline]
    pub fn part<'a>(&self, part: SpanPart, raw: &'a [u8]) -> Option<(usize, &'a [u8])> {
        let at = part as usize;
        let event = u16::from_ne_bytes(*raw.get(EVENTS + 2 * at..)?.first_chunk()?);
        let place = u32::from_ne_bytes(*raw.get(RECORDS + 4 * at..)?.first_chunk()?);
        let (offset, size) = ((place & 0xffff) as usize, (place >> 16) as usize);
        let record = raw.get(offset..)?.get(..size).filter(|record| record.len() >= 8)?;
        Some((event.into(), record))
    }

    /// Returns a part of the span with this raw data, as a sample.
    #[inline]
    pub fn sample<'a>(&'a self, part: SpanPart, raw: &'a [u8]) -> Option<Sample<'a>> {
        let (event, record) = self.part(part, raw)?;
        Some(Sample { event: self.inputs.get(event)?, record })
    }

    /// Returns the samples between the begin and the end of the span with this raw data. Each item is the index of the
    /// sample's event type, and the sample's record.
    pub fn between<'a>(&self, raw: &'a [u8]) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let place = raw.get(NOTES..).and_then(|rest| rest.first_chunk()).map_or(0, |place| u32::from_ne_bytes(*place));
        let (offset, size) = ((place & 0xffff) as usize, (place >> 16) as usize);
        let bytes = raw.get(offset..).and_then(|rest| rest.get(..size)).unwrap_or(&[]);
        notes(bytes).map(|note| (note.input, note.record))
    }

    /// Returns the sample whose call chain is that of the span.
    pub fn sample_with_chain<'a>(&'a self, raw: &'a [u8]) -> Option<Sample<'a>> {
        self.sample(self.chain, raw)
    }
}

/// Overwrites bytes of `out`, starting at the offset `at`.
fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = out.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}
