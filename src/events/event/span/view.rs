//! The samples of a span, as functions that compute fields see them.

use std::borrow::Cow;

use perf_prof_format::{
    tracefs::{Kernel, NoKernel, symbol_name},
    value::Value,
};

use super::{Ran, SpanSamples};
use crate::event::{Context, EventType, Sample, UNKNOWN_COMM};

/// A sample between the begin and the end of a span.
#[derive(Clone, Copy, Debug)]
pub struct SpanNote<'a> {
    /// The index of its event type among the inputs of the span.
    pub input: usize,
    /// Which rule keeps the sample: an index into the rules of the event type.
    pub rule: usize,
    /// In the first note of a rule: how often the rule applied during the span. Not all of these samples are kept. In other
    /// notes, 0.
    pub count: u32,
    /// The record of the sample.
    pub record: &'a [u8],
}

impl SpanNote<'_> {
    /// Appends the note in the form that [`notes`] reads: the input (2 bytes), the rule (2 bytes), the count (4 bytes), and
    /// the record, whose size is a multiple of 8.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend((self.input as u16).to_ne_bytes());
        out.extend((self.rule as u16).to_ne_bytes());
        out.extend(self.count.to_ne_bytes());
        out.extend_from_slice(self.record);
    }
}

/// The size of a note without the record, in bytes.
const NOTE_HEADER: usize = 8;

/// Reads notes until the bytes end, or up to a damaged note.
pub fn notes(bytes: &[u8]) -> impl Iterator<Item = SpanNote<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let input = u16::from_ne_bytes(*rest.first_chunk()?);
        let rule = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
        let count = u32::from_ne_bytes(*rest.get(4..)?.first_chunk()?);
        let record = rest.get(NOTE_HEADER..)?;
        let size: usize = u16::from_ne_bytes(*record.get(6..)?.first_chunk()?).into();
        let record = record.get(..size).filter(|record| record.len() >= 8)?;
        rest = rest.get(NOTE_HEADER + size..).unwrap_or(&[]);
        Some(SpanNote { input: input.into(), rule: rule.into(), count, record })
    })
}

/// A span, as functions that compute fields see it.
#[derive(Clone, Copy)]
pub struct SpanView<'a> {
    inputs: &'a [EventType],
    samples: SpanSamples<'a>,
    context: Option<&'a Context>,
}

impl<'a> SpanView<'a> {
    pub(super) fn new(inputs: &'a [EventType], samples: SpanSamples<'a>, context: Option<&'a Context>) -> Self {
        Self { inputs, samples, context }
    }

    /// Returns the name of the task in which the sample was taken.
    pub fn comm(&self, part: &PartView<'a>) -> Cow<'a, [u8]> {
        let name = self.context.and_then(|context| context.comm(part.tid(), part.time()));
        name.map_or(Cow::Borrowed(UNKNOWN_COMM), Cow::Owned)
    }

    /// Returns the process id and the thread id of a thread. The process is that of a sample in this thread, or else the
    /// process in the records about tasks; -1 if it is unknown.
    pub fn task(&self, tid: i32) -> (i32, i32) {
        let own = [Some(self.begin()), self.end()].into_iter().flatten().find(|part| part.tid() == tid);
        let known = || self.context.and_then(|context| context.process(tid));
        // While a thread exits, the kernel removes its process id (`perf_event_pid()` in kernel/events/core.c).
        (own.map(|part| part.pid()).filter(|&pid| pid > 0).or_else(known).unwrap_or(-1), tid)
    }

    /// Returns the text of a sample, in the print format of its event.
    pub fn text(&self, part: &PartView<'a>) -> Vec<u8> {
        let mut text = Vec::new();
        if let Some(format) = part.event.and_then(|event| event.format.tracepoint()) {
            format.render(part.raw(), self.kernel(), &mut text);
        }
        text
    }

    /// Returns a field of a sample as the print format of its event shows it, such as the name of a flag. Empty if the event
    /// has no such field.
    pub fn shown(&self, part: &PartView<'a>, field: &str) -> Cow<'a, [u8]> {
        let mut text = Vec::new();
        if let Some(format) = part.event.and_then(|event| event.format.tracepoint()) {
            format.render_field(field, part.raw(), self.kernel(), &mut text);
        }
        text.into()
    }

    fn kernel(&self) -> &dyn Kernel {
        match self.context {
            Some(context) => &*context.kernel,
            None => &NoKernel,
        }
    }

    /// Returns the name of the kernel function at an address, as `%ps` in print formats shows it.
    pub fn function(&self, address: u64) -> Cow<'a, [u8]> {
        symbol_name(address, self.kernel()).into()
    }

    /// Returns the kernel symbol at an address. Empty if there is none.
    pub fn symbol(&self, address: u64) -> Cow<'a, [u8]> {
        let symbol = self.kernel().symbol(address);
        symbol.map_or(b"".into(), |symbol| symbol.name.into_owned().into_bytes().into())
    }

    /// Returns the architecture of the machine that was traced.
    pub fn machine(&self) -> &'a str {
        self.context.map_or(std::env::consts::ARCH, Context::machine)
    }

    /// Returns whether the tracepoint with this name, such as `sched_waking`, is among the events of the spans.
    pub fn has_input(&self, name: &str) -> bool {
        self.inputs.iter().any(|event| PartView { event: Some(event), record: &[] }.is(name))
    }

    /// Returns which input the sample that began the span belongs to.
    pub fn begin_input(&self) -> usize {
        self.samples.begin.0
    }

    /// Returns the sample that began the span.
    pub fn begin(&self) -> PartView<'a> {
        PartView { event: self.inputs.get(self.samples.begin.0), record: self.samples.begin.1 }
    }

    /// Returns the sample that ended the span; `None` if it is open.
    pub fn end(&self) -> Option<PartView<'a>> {
        self.samples.end.map(|(input, record)| PartView { event: self.inputs.get(input), record })
    }

    /// Returns the sample that ended the span. For an open span, returns the sample that began it.
    pub fn last(&self) -> PartView<'a> {
        self.end().unwrap_or_else(|| self.begin())
    }

    /// Returns the kept samples between the begin and the end, each with a number. For the first sample of a rule, the
    /// number says how often the rule applied. For other samples, it is 0.
    pub fn notes(&self) -> impl Iterator<Item = (PartView<'a>, u32)> + use<'a> {
        let Self { inputs, samples, .. } = *self;
        notes(samples.notes)
            .map(move |note| (PartView { event: inputs.get(note.input), record: note.record }, note.count))
    }

    /// Returns the first kept sample of the tracepoint with this name, such as `sched_waking`.
    pub fn note(&self, name: &str) -> Option<PartView<'a>> {
        self.notes().map(|(part, _)| part).find(|part| part.is(name))
    }

    /// Returns the first kept sample of the tracepoint with this name, unless it happened in an interrupt. In an interrupt,
    /// the sample's task is only the interrupted task.
    pub fn noted_in_task(&self, name: &str) -> Option<PartView<'a>> {
        self.note(name).filter(|noted| !noted.is_in_interrupt())
    }

    /// Returns how often the rules for samples of the tracepoint with this name applied during the span.
    pub fn count(&self, name: &str) -> u64 {
        self.notes().filter(|(part, _)| part.is(name)).map(|(_, count)| u64::from(count)).sum()
    }

    /// Returns the number at the index `at` of the key, if the key consists of one or two numbers. Returns 0 otherwise.
    pub fn key(&self, at: usize) -> i64 {
        self.samples.key.get(at).map_or(0, |&number| number as i64)
    }

    /// Returns the threads that ran during the span on the CPU on which it ended, the longest time first. `None` if they
    /// were not observed.
    pub fn ran(&self) -> Option<&'a [Ran]> {
        self.samples.ran
    }

    /// Returns the time from the begin to the end in ns.
    pub fn duration(&self) -> u64 {
        self.samples.duration
    }
}

/// A sample of a span, with access to its fields.
#[derive(Clone, Copy, Debug)]
pub struct PartView<'a> {
    event: Option<&'a EventType>,
    record: &'a [u8],
}

impl<'a> PartView<'a> {
    /// Creates the view of a sample.
    pub fn new(event: &'a EventType, record: &'a [u8]) -> Self {
        PartView { event: Some(event), record }
    }

    /// Returns whether this is a sample of the tracepoint with this name. The name has no system.
    pub fn is(&self, name: &str) -> bool {
        self.event.and_then(|event| event.format.tracepoint()).is_some_and(|format| &*format.name == name)
    }

    /// Returns the name of the event, without its system.
    pub fn name(&self) -> &'a str {
        self.event.and_then(|event| event.format.tracepoint()).map_or("", |format| &format.name)
    }

    /// Returns the raw data of the sample.
    pub fn raw(&self) -> &'a [u8] {
        self.event.and_then(|event| event.layout.raw(self.record)).unwrap_or(&[])
    }

    fn value(&self, field: &str) -> Option<Value<'a>> {
        self.event?.format.tracepoint()?.field(field)?.value(self.raw())
    }

    /// Returns the number in a field. Returns 0 if the event has no such field.
    pub fn int(&self, field: &str) -> i64 {
        match self.value(field) {
            Some(Value::Int(value)) => value,
            Some(Value::Uint(value)) => value as i64,
            Some(Value::Bool(value)) => value.into(),
            _ => 0,
        }
    }

    /// Returns the number in a field as an unsigned number. Returns 0 if the event has no such field.
    pub fn uint(&self, field: &str) -> u64 {
        self.int(field) as u64
    }

    /// Returns the text in a field. Empty if the event has no such field.
    pub fn text(&self, field: &str) -> &'a [u8] {
        if let Some(Value::Str(text)) = self.value(field) { text } else { &[] }
    }

    /// Returns the text from user space in a field. `None` if it could not be read, or if the event has no such field.
    pub fn user_text(&self, field: &str) -> Option<&'a [u8]> {
        if let Some(Value::Str(text)) = self.value(field) { Some(text) } else { None }
    }

    /// Returns the size of a field in bytes; 0 if the event has no such field.
    pub fn size_of(&self, field: &str) -> usize {
        let format = self.event.and_then(|event| event.format.tracepoint());
        format.and_then(|format| format.field(field)).map_or(0, |field| field.size)
    }

    /// Returns the bytes of an array field. Empty if the event has no such field.
    pub fn bytes(&self, field: &str) -> &'a [u8] {
        if let Some(Value::Bytes(bytes)) = self.value(field) { bytes } else { &[] }
    }

    fn sample(&self) -> Option<Sample<'a>> {
        Some(Sample { event: self.event?, record: self.record })
    }

    /// Returns the time of the sample, in ns.
    pub fn time(&self) -> u64 {
        self.sample().map_or(0, |sample| sample.time())
    }

    /// Returns the process in which the event happened.
    pub fn pid(&self) -> i32 {
        self.sample().map_or(-1, |sample| sample.pid_tid().0)
    }

    /// Returns the thread in which the event happened.
    pub fn tid(&self) -> i32 {
        self.sample().map_or(-1, |sample| sample.pid_tid().1)
    }

    /// Returns whether the event happened in an interrupt. The sample's task is then only the interrupted task.
    pub fn is_in_interrupt(&self) -> bool {
        // TRACE_FLAG_HARDIRQ and TRACE_FLAG_SOFTIRQ in include/linux/trace_events.h.
        self.int("common_flags") & (0x08 | 0x10) != 0
    }

    /// Returns the CPU on which the event happened.
    pub fn cpu(&self) -> u32 {
        self.sample().map_or(0, |sample| sample.cpu())
    }
}
