//! Runs a source on samples that tests make.

use std::{collections::HashMap, sync::Arc};

use perf_prof_format::{
    abi::{PERF_SAMPLE_CPU, PERF_SAMPLE_RAW, PERF_SAMPLE_TID, PERF_SAMPLE_TIME},
    record::{SampleLayout, SampleValues},
    spec::{EventKind, parse_events},
    tracefs::{EventFormat, FieldInput, NoKernel},
    value::ValueType,
};

use super::SourceDefinition;
use crate::{
    derive::{Derivation, Span, SpanRule},
    event::{Context, EventType, Flow, Format, Sample, SpanCounts, SpanPart},
};

/// An event that a source needs.
pub struct MadeEvent {
    /// `system:name`
    pub name: &'static str,
    /// The C declarations of its fields.
    pub fields: &'static [&'static str],
    /// Its print format.
    pub print: &'static str,
}

/// A sample. A field of characters contains the bytes of its number.
pub struct MadeSample<'a> {
    pub event: &'a str,
    pub tid: i32,
    pub cpu: u32,
    pub time: u64,
    pub fields: &'a [(&'a str, i64)],
}

/// A source that is running.
pub struct MadeRun {
    event: EventType,
    inputs: Vec<EventType>,
    counts: Arc<SpanCounts>,
    context: Arc<Context>,
    engine: Box<dyn Derivation>,
    /// The spans that the source delivered.
    pub delivered: Vec<MadeSpan>,
}

/// A delivered span: its process and thread, and when it began and ended, in ns. The end of an open span is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadeSpan {
    pub task: (i32, i32),
    pub begin: u64,
    pub end: u64,
}

impl MadeSpan {
    fn of(event: &EventType, record: &[u8]) -> MadeSpan {
        let Format::Span(format) = &event.format else { panic!() };
        let span = Sample { event, record };
        let time = |part| format.sample(part, span.raw()).map_or(0, |sample| sample.time());
        MadeSpan { task: span.pid_tid(), begin: time(SpanPart::Begin), end: time(SpanPart::End) }
    }
}

impl MadeEvent {
    fn event_type(&self) -> EventType {
        let (system, name) = self.name.split_once(':').unwrap();
        let mut text = format!(
            "name: {name}\nID: 7\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
             \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
             \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
        );
        for (at, field) in self.fields.iter().enumerate() {
            let size = if field.starts_with("unsigned int ") || field.starts_with("int ") { 4 } else { 8 };
            let signed = u8::from(field.starts_with("int ") || field.starts_with("s64 "));
            text += &format!("\tfield:{field};\toffset:{};\tsize:{size};\tsigned:{signed};\n", 8 + 8 * at);
        }
        text += &format!("\nprint fmt: {}\n", self.print);
        let format = Format::Tracepoint(Arc::new(EventFormat::parse(system, &text).unwrap()));
        let members = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_RAW;
        EventType { alias: None, format, layout: SampleLayout::new(members, 0), max_stack: None }
    }
}

impl MadeRun {
    /// Starts the source that this selector selects. `events` are the events that exist.
    pub fn start(source: &SourceDefinition, selector: &str, events: &[MadeEvent]) -> MadeRun {
        MadeRun::start_in(Context::new(Box::new(NoKernel), 0), source, selector, events)
    }

    /// Like `start`, with a context.
    pub fn start_in(context: Context, source: &SourceDefinition, selector: &str, events: &[MadeEvent]) -> MadeRun {
        let spec = parse_events(selector).unwrap().remove(0);
        let EventKind::Span(span) = &spec.kind else { panic!("{selector}") };
        let rules = SpanRule::all(span).unwrap();
        assert_eq!(rules.len(), source.rules.len());
        let is_of = |rule: &SpanRule, event: &MadeEvent| match &rule.event {
            EventKind::Tracepoint { system, name } => format!("{system}:{name}") == event.name,
            _ => false,
        };
        let inputs: Vec<EventType> = events.iter().map(MadeEvent::event_type).collect();
        let own = events.iter().map(|event| {
            let own = rules.iter().enumerate().filter(|(_, rule)| is_of(rule, event));
            own.map(|(at, _)| at).collect()
        });
        let formats: Vec<(Format, Vec<usize>)> = inputs.iter().map(|input| input.format.clone()).zip(own).collect();
        let made = Span::new(span, spec.filter.as_deref(), None, &formats).unwrap();
        let event = made.event_type(&inputs).unwrap();
        let counts = Arc::new(SpanCounts::default());
        let context = Arc::new(context);
        let engine = made.start(&event, counts.clone(), context.clone()).unwrap();
        MadeRun { event, inputs, counts, context, engine, delivered: Vec::new() }
    }

    /// Notes that a thread belongs to a process.
    pub fn belongs(&self, tid: i32, pid: i32) {
        self.context.with_tasks(|tasks| {
            tasks.named_before_run(tid, b"thread");
            tasks.belongs(tid, pid);
        });
    }

    /// Passes samples to the source. Returns the text lines of the delivered spans.
    pub fn spans(&mut self, samples: &[MadeSample<'_>]) -> Vec<String> {
        let mut spans = Vec::new();
        for sample in samples {
            let name = |input: &EventType| input.format.name() == sample.event;
            let input = self.inputs.iter().position(name).unwrap_or_else(|| panic!("{}", sample.event));
            let own = [("common_pid", i64::from(sample.tid))];
            let fields = own.iter().chain(sample.fields);
            let format = self.inputs[input].format.tracepoint().unwrap();
            let value = |name: &str, value: i64| match format.field(name).map(|field| field.kind.value_type()) {
                Some(ValueType::Str) => FieldInput::Bytes(value.to_le_bytes().into()),
                _ => FieldInput::Int(value.into()),
            };
            let fields: HashMap<String, FieldInput> =
                fields.map(|&(name, number)| (name.to_owned(), value(name, number))).collect();
            let raw = format.encode(&fields).unwrap();
            let (pid, tid) = (sample.tid, sample.tid);
            let values = SampleValues { pid, tid, time: sample.time, cpu: sample.cpu, raw, ..SampleValues::default() };
            let record = self.inputs[input].layout.encode(&values).unwrap();
            let (event, delivered) = (&self.event, &mut self.delivered);
            let _ = self.engine.sample(input, &record, &mut |record| {
                let mut text = Vec::new();
                delivered.push(MadeSpan::of(event, record));
                let Format::Span(format) = &event.format else { panic!() };
                format.format.render(Sample { event, record }.raw(), &NoKernel, &mut text);
                spans.push(String::from_utf8(text).unwrap());
                Flow::Continue(())
            });
        }
        spans
    }

    /// Notes that a thread exited.
    pub fn exits(&mut self, tid: i32, time: u64) {
        self.engine.task_exited(tid, time);
    }

    /// Ends the run. The source delivers the open spans now, if the selector has `open`.
    pub fn finish(&mut self) {
        let (event, delivered) = (&self.event, &mut self.delivered);
        let _ = self.engine.finish(&mut |record| {
            delivered.push(MadeSpan::of(event, record));
            Flow::Continue(())
        });
    }

    /// Reports that all events until `now` were delivered. Returns the tasks with spans that are open and should have ended,
    /// and the numbers of these spans.
    pub fn overdue(&mut self, now: u64) -> Vec<(i32, u64)> {
        self.engine.delivered_until(now);
        self.counts.overdue().tasks().into_iter().map(|(task, gaps)| (task, gaps.count)).collect()
    }

    /// Returns, after the end of the run, how many spans had not ended and were not delivered, if the source tells it.
    pub fn not_ended(&self) -> Option<u64> {
        self.engine.not_ended()
    }

    /// Returns the number of spans that were left out because tasks are selected, and their task is not known.
    pub fn without_task(&self) -> u64 {
        self.counts.without_task()
    }

    /// Returns the number of spans whose end was not seen.
    pub fn unended(&self) -> u64 {
        self.counts.unended()
    }

    /// Returns the number of spans whose end cannot be distinguished from the end of another span.
    pub fn ambiguous(&self) -> u64 {
        self.counts.ambiguous()
    }

    /// Reports that a thread was created.
    pub fn created(&mut self, tid: i32, time: u64) {
        self.engine.task_created(tid, time);
    }

    /// Reports that a thread exited.
    pub fn exited(&mut self, tid: i32, time: u64) {
        self.engine.task_exited(tid, time);
    }

    /// Reports a loss.
    pub fn lost(&mut self) {
        self.engine.lost(0, 0);
    }

    /// Reports that a ring begins to lose events.
    pub fn loss_begins(&mut self) {
        self.engine.loss_begins();
    }

    /// Reports the end of a loss.
    pub fn lost_until(&mut self, end: u64) {
        self.engine.lost(0, end);
    }

    /// Returns the maximum total duration of a task's dropped spans, in ns.
    pub fn missing_of(&self, task: i32) -> u64 {
        let tasks = self.counts.incomplete().tasks();
        tasks.iter().filter(|(tid, _)| *tid == task).map(|(_, gaps)| gaps.missing).sum()
    }

    /// Returns the tasks that lack spans, and the numbers of their gaps.
    pub fn gaps(&self) -> Vec<(i32, u64)> {
        self.counts.incomplete().tasks().into_iter().map(|(task, gaps)| (task, gaps.count)).collect()
    }

    /// Returns the maximum total duration of the dropped spans, in ns.
    pub fn missing(&self) -> u64 {
        self.counts.incomplete().missing()
    }

    /// Returns the CPUs that delivered no event of their idle task.
    pub fn cpus_without_idle_events(&self) -> Vec<u32> {
        self.counts.incomplete().cpus_without_idle_events()
    }

    /// Returns the number of spans that began before the recording, and how long they lasted at least, in ns.
    pub fn before(&self) -> (u64, u64) {
        (self.counts.begun_before(), self.counts.time_before())
    }

    /// Returns the numbers of opened spans, of ended spans, of dropped spans, and of ends without a begin.
    pub fn counts(&self) -> [u64; 4] {
        let counts = &self.counts;
        assert_eq!(counts.opened(), counts.ended() + counts.open() + counts.dropped());
        [counts.opened(), counts.ended(), counts.dropped(), counts.without_begin()]
    }
}
