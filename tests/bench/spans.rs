//! Measures spans: the time per event that begins or ends one, and the memory of open ones.

use std::{fs, hint::black_box, ops::ControlFlow, sync::Arc};

use perf_prof_events::{
    derive::{self, Derived, DerivingSink, Span},
    event::{AlwaysEntered, Context, Deliver, EventType, Flow, Format, Sink as _, Stats},
};
use perf_prof_format::{
    abi::{PERF_SAMPLE_CPU, PERF_SAMPLE_RAW, PERF_SAMPLE_TID, PERF_SAMPLE_TIME},
    record::{SampleLayout, SampleValues},
    spec::{EventKind, parse_events},
    tracefs::{EventFormat, NoKernel},
};

use super::{cpu::thread_ns, table::Table};

const EVENTS: u64 = 1_000_000;
const OPEN: u64 = 1_000_000;
/// The number of threads that make system calls in turn.
const THREADS: i32 = 64;

/// A sink that only counts.
#[derive(Default)]
struct Counted(u64);

impl AlwaysEntered for Counted {}

impl Deliver for Counted {
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        self.0 += black_box(event + record.len()) as u64;
        ControlFlow::Continue(())
    }
}

/// The two events of a system call with six arguments.
fn inputs() -> Vec<EventType> {
    let text = |name: &str, fields: &str| {
        format!(
            "name: {name}\nID: 7\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
             \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\
             {fields}\nprint fmt: \"\"\n"
        )
    };
    let enter = "\tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;\n";
    let exit = "\tfield:long ret;\toffset:16;\tsize:8;\tsigned:1;\n";
    let layout = SampleLayout::new(PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_RAW, 0);
    let event = |name: &str, fields: &str| {
        let format = EventFormat::parse("raw_syscalls", &text(name, fields)).unwrap();
        EventType { alias: None, format: Format::Tracepoint(Arc::new(format)), layout, max_stack: None }
    };
    vec![event("sys_enter", enter), event("sys_exit", exit)]
}

/// A span over these events.
fn span(selector: &str, inputs: &[EventType]) -> Derived {
    let spec = parse_events(selector).unwrap().remove(0);
    let EventKind::Span(of) = &spec.kind else { panic!("{selector} is not a span") };
    let formats: Vec<_> = inputs.iter().enumerate().map(|(at, input)| (input.format.clone(), vec![at])).collect();
    let span = Arc::new(Span::new(of, spec.filter.as_deref(), None, &formats).unwrap());
    Derived { span, inputs: vec![0, 1] }
}

/// Returns records of system calls, each with the index of its event. The threads make calls in turn.
fn calls(inputs: &[EventType], count: u64) -> Vec<(usize, Vec<u8>)> {
    let record = |at: u64| {
        let (thread, of_end) = ((at / 2) as i32 % THREADS, at % 2 == 1);
        let mut raw = vec![0; if of_end { 24 } else { 64 }];
        raw[8] = 3;
        let values =
            SampleValues { pid: 1, tid: 100 + thread, time: 1000 * at, cpu: 0, raw, ..SampleValues::default() };
        let event = usize::from(of_end);
        (event, inputs[event].layout.encode(&values).unwrap())
    };
    (0..count).map(record).collect()
}

/// Returns the time per record for delivering the records with these spans.
fn deliver(inputs: &[EventType], derived: &[Derived], records: &[(usize, Vec<u8>)]) -> f64 {
    let types = derive::with_derived(inputs.to_vec(), derived).unwrap();
    let stats = Stats::new(types.len(), 1).with_spans(derived.len());
    let context = Arc::new(Context::new(Box::new(NoKernel), 0));
    let mut sink = Counted::default();
    let mut deriving = DerivingSink::start(&mut sink, &types, derived, &stats, &context);
    let begun = thread_ns();
    deriving.enter(&mut |program| {
        for (event, record) in records {
            let _ = program.sample(*event, record);
        }
    });
    let _ = deriving.deliver_held();
    (thread_ns() - begun) as f64 / records.len() as f64
}

pub fn rows(table: &mut Table) {
    let inputs = inputs();
    let records = calls(&inputs, table.effort.count(EVENTS));
    let ways = [
        ("span, event of a short one", "span:x=raw_syscalls:sys_enter..raw_syscalls:sys_exit//min=1s/"),
        ("span, event of one that is filtered out", "span:x=raw_syscalls:sys_enter..raw_syscalls:sys_exit/ret<0/"),
        ("span, event of one that is delivered", "span:x=raw_syscalls:sys_enter..raw_syscalls:sys_exit"),
        ("source syscall, event of a short one", "syscall/min=1s/"),
        ("source syscall, event of one that is delivered", "syscall"),
    ];
    let spans = ways.map(|(name, selector)| (name, selector, [span(selector, &inputs)]));
    let mut times = vec![Vec::new(); spans.len()];
    for _ in 0..table.effort.runs() {
        let without = deliver(&inputs, &[], &records);
        for ((_, _, derived), times) in spans.iter().zip(&mut times) {
            times.push(deliver(&inputs, derived, &records) - without);
        }
    }
    for ((name, selector, _), times) in spans.iter().zip(&times) {
        table.row(name, times, "ns", &format!("`{selector}`, per event over reading it; two events make a span"));
    }
    memory(table, &inputs);
}

/// Measures the memory of open spans.
fn memory(table: &mut Table, inputs: &[EventType]) {
    let open = table.effort.count(OPEN);
    let derived = [span("span:x=raw_syscalls:sys_enter..raw_syscalls:sys_exit", inputs)];
    let types = derive::with_derived(inputs.to_vec(), &derived).unwrap();
    let stats = Stats::new(types.len(), 1).with_spans(1);
    let context = Arc::new(Context::new(Box::new(NoKernel), 0));
    let mut sink = Counted::default();
    let before = resident();
    let mut deriving = DerivingSink::start(&mut sink, &types, &derived, &stats, &context);
    deriving.enter(&mut |program| {
        for at in 0..open {
            let values =
                SampleValues { pid: 1, tid: at as i32, time: at, cpu: 0, raw: vec![0; 64], ..SampleValues::default() };
            let _ = program.sample(0, &inputs[0].layout.encode(&values).unwrap());
        }
    });
    let used = (resident() - before) as f64 / f64::from(1 << 20);
    drop(deriving);
    table.row("memory of 1,000,000 open spans", &[used], "MiB", "of a system call with six arguments");
}

/// Returns the resident memory of this process in bytes.
fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
