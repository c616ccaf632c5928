//! The kernel's verifier accepts the BPF programs of aggregators, for all events of a modern kernel.

use std::{
    fs,
    os::fd::{AsFd, AsRawFd},
    path::Path,
    sync::Arc,
};

use perf_prof_capture::Owner;
use perf_prof_events::{
    aggregate::{Buckets, Definition, LinearRanges, Measure, Plan},
    derive::{Span, SpanRule},
    event::{EventType, Format},
};
use perf_prof_format::{
    abi::{
        PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_CPU, PERF_SAMPLE_RAW, PERF_SAMPLE_TID, PERF_SAMPLE_TIME,
        bpf::{MapType, ProgramType},
    },
    record::SampleLayout,
    spec::{EventKind, parse_events},
    tracefs::{ARGUMENTS, Btf, Enumerators, EventFormat, Field, Filter, FormatCollection, points_to_text},
    value::ValueType,
};
use perf_prof_in_kernel::{
    frames::FRAMES_BYTES,
    instruction::{MapUse, Program as Compiled},
    lower::{Chains, Unsuited},
    paths::{NumberIterator, PATHS_BYTES, PathTypes},
    select::{EventRegisters, Own, Selection, TaskIds, fork_program, removal_program, start_program},
    span::{
        GAP_BYTES, Hook, KEPT_STRING_BYTES, KernelFrames, MARKS_BYTES, PairPrograms, SelectedCalls, SelectedInput,
        SelectedSpan, SpanPrograms, SpanTasks, pair_programs, span_programs, witness_program,
    },
    strings::{KernelTypes, StringProgram, UNREAD_BYTES, frames_program, probe_program, string_program},
    table::{Shape, chain, table_program},
};
use perf_prof_symbols::runtime::Walk;
use perf_prof_system::{
    bpf::{CounterPage, Map, MapDefinition, Program},
    file::SharedFile,
    probe_definition::{FireAt, ProbeDefinition, ProbedCode, ProbedPlace},
};

use crate::harness::machine::{Need, needs, skip};

fn formats() -> FormatCollection {
    FormatCollection::from_zstd(include_bytes!("../../src/python/testing/linux-6.18-x86_64.zst")).unwrap()
}

fn event(format: Arc<EventFormat>) -> EventType {
    let members = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_RAW;
    let layout = SampleLayout::new(members, 0);
    EventType { alias: None, format: Format::Tracepoint(format), layout, max_stack: None }
}

/// The maps of a BPF program.
struct Maps {
    tables: Map,
    open: Map,
    counters: (Map, CounterPage),
    tasks: Map,
    cgroups: Map,
    record: Map,
    output: Map,
    arguments: Map,
    unread: Map,
    names: Map,
    marks: Map,
    gaps: Map,
    chain: Map,
    segments: Map,
    since: Map,
    paths: Map,
    interpreters: Map,
    frames: Map,
}

impl Maps {
    /// Creates the maps. `open` is the size of the keys and of the values of open spans.
    fn new(shape: Option<&Shape>, open: (usize, usize)) -> Maps {
        Maps::with_record(shape, open, 8)
    }

    fn with_record(shape: Option<&Shape>, open: (usize, usize), record_bytes: usize) -> Maps {
        let (key_size, value_size) = shape.map_or((8, 8), |shape| (shape.key_bytes, shape.value_bytes));
        let hash = MapDefinition {
            name: "table",
            map_type: MapType::Hash,
            key_size,
            value_size,
            entries: 16,
            flags: 0,
            inner: None,
        };
        let table = Map::new(&hash).unwrap();
        let (key_size, value_size) = (chain::KEY_BYTES, chain::VALUE_BYTES);
        let segments = Map::new(&MapDefinition { key_size, value_size, ..hash }).unwrap();
        let array = |map_type, inner| MapDefinition { map_type, key_size: 4, value_size: 4, entries: 1, inner, ..hash };
        Maps {
            tables: Map::new(&array(MapType::ArrayOfMaps, Some(&table))).unwrap(),
            open: Map::new(&MapDefinition { key_size: open.0, value_size: open.1, ..hash }).unwrap(),
            counters: CounterPage::new("counters", KernelFrames::ALL_WORDS).unwrap(),
            tasks: Map::new(&MapDefinition { key_size: 4, value_size: 1, ..hash }).unwrap(),
            cgroups: Map::new(&array(MapType::CgroupArray, None)).unwrap(),
            record: Map::new(&MapDefinition { value_size: record_bytes, ..array(MapType::PerCpuArray, None) }).unwrap(),
            output: Map::new(&array(MapType::PerfEventArray, None)).unwrap(),
            gaps: Map::new(&MapDefinition { key_size: 8, value_size: GAP_BYTES, ..hash }).unwrap(),
            marks: Map::new(&MapDefinition { value_size: MARKS_BYTES, ..array(MapType::PerCpuArray, None) }).unwrap(),
            unread: Map::new(&MapDefinition { key_size: 8, value_size: UNREAD_BYTES, ..hash }).unwrap(),
            names: Map::new(&MapDefinition { key_size: 8, value_size: KEPT_STRING_BYTES, ..hash }).unwrap(),
            paths: Map::new(&MapDefinition { value_size: PATHS_BYTES, ..array(MapType::PerCpuArray, None) }).unwrap(),
            interpreters: Map::new(&MapDefinition { key_size: 4, value_size: 8 * Walk::WORDS, ..hash }).unwrap(),
            frames: Map::new(&MapDefinition { value_size: FRAMES_BYTES, ..array(MapType::PerCpuArray, None) }).unwrap(),
            chain: Map::new(&MapDefinition { value_size: chain::BUFFER_BYTES, ..array(MapType::PerCpuArray, None) })
                .unwrap(),
            segments: Map::new(&array(MapType::ArrayOfMaps, Some(&segments))).unwrap(),
            since: Map::new(&MapDefinition { key_size: 4, value_size: 8, ..hash }).unwrap(),
            arguments: Map::new(&MapDefinition { value_size: 8, ..array(MapType::Array, None) }).unwrap(),
        }
    }

    #[track_caller]
    fn load(&self, program: &Compiled, of: &str) {
        self.load_as(ProgramType::Tracepoint, program, of);
    }

    #[track_caller]
    fn load_raw(&self, program: &Compiled, of: &str) {
        self.load_as(ProgramType::RawTracepoint, program, of);
    }

    #[track_caller]
    fn load_as(&self, program_type: ProgramType, program: &Compiled, of: &str) {
        let words = program.with_maps(|map| {
            let map = match map {
                MapUse::Tables => &self.tables,
                MapUse::Open => &self.open,
                MapUse::Counters => &self.counters.0,
                MapUse::Tasks => &self.tasks,
                MapUse::Cgroups => &self.cgroups,
                MapUse::Record => &self.record,
                MapUse::Output => &self.output,
                MapUse::Arguments => &self.arguments,
                MapUse::Unread => &self.unread,
                MapUse::Names => &self.names,
                MapUse::Marks => &self.marks,
                MapUse::Gaps => &self.gaps,
                MapUse::Chain => &self.chain,
                MapUse::Segments => &self.segments,
                MapUse::Since => &self.since,
                MapUse::Paths => &self.paths,
                MapUse::Interpreters => &self.interpreters,
                MapUse::Frames => &self.frames,
            };
            map.as_fd().as_raw_fd() as u32
        });
        let loaded = Program::load("test", program_type, &words);
        if let Err(refused) = loaded {
            panic!("{of}: {refused}\n{}", refused.log);
        }
    }
}

/// Returns what the kernel's BTF says of these names.
fn btf(needs: fn(&str) -> bool) -> Btf {
    let bytes = fs::read("/sys/kernel/btf/vmlinux").ok();
    bytes.and_then(|bytes| Btf::parse(&bytes, Enumerators::Skipped, needs)).unwrap_or_default()
}

/// Returns how programs recognize events in interrupts.
fn registers() -> Option<EventRegisters> {
    EventRegisters::of(&btf(EventRegisters::needs))
}

/// Returns three variants of the kernel's types: as they are, as on older kernels, and none. Without types, records
/// contain no paths.
fn path_types() -> [Option<PathTypes>; 3] {
    let types = PathTypes::of(&btf(PathTypes::needs));
    [types, types.map(|types| PathTypes { iterator: None, ..types }), None]
}

/// Returns definitions that cover all fields of an event, with at most three keys each.
fn definitions(format: &EventFormat) -> Vec<Definition> {
    let is_number = |field: &&Field| matches!(field.kind.value_type(), ValueType::Int | ValueType::Bool);
    let numbers: Vec<&Field> = format.fields().iter().filter(is_number).collect();
    let texts = format.fields().iter().filter(|field| field.is_fixed_text());
    let linear = Buckets::linear(LinearRanges { low: -7, high: 90_000, step: 7 }, 1000).unwrap();
    let measures = [Measure::Sum, Measure::Distribution(Buckets::log2(1_000_000)), Measure::Distribution(linear)];
    let filter = numbers.first().map(|field| format!("!({} > 1 && cpu < 3)", field.name));
    let filters: Vec<String> = texts
        .flat_map(|field| {
            ["== \"abc\"", "~ \"kw*\"", "~ \"*er\"", "~ \"*work*\""].map(|test| format!("{} {test}", field.name))
        })
        .chain(filter)
        .collect();
    let names: Vec<String> = format.fields().iter().map(|field| field.name.clone()).collect();
    let mut all = Vec::new();
    for (at, keys) in names.chunks(3).chain([&["_comm".into(), "_tid".into(), "_event".into()][..], &[]]).enumerate() {
        all.push(Definition {
            keys: keys.to_vec(),
            value: numbers.get(at).map(|field| field.name.clone()),
            filter: filters.get(at).cloned(),
            limit: 100,
            measure: measures[at % 3],
        });
    }
    all
}

#[test]
fn the_verifier_accepts_the_programs_of_tables_of_all_events() {
    needs([Need::Bpf]);
    let formats = formats();
    let own = Own { process: Some(std::process::id()), threads: vec![7], owner: Owner::Task, registers: registers() };
    let cpus = Some([0, 1, 5].into());
    let narrow = Selection { own, tasks: Some(TaskIds::Threads), cpus, cgroups: 2, ..Selection::EVERYTHING };
    let (mut loaded, mut unsuited) = (0, Vec::new());
    for (at, (system, name)) in formats.events().enumerate() {
        let event = event(formats.format(system, name).unwrap().unwrap());
        let format = event.format.tracepoint().unwrap();
        for definition in definitions(format) {
            let plan = Plan::new(&definition, &event).unwrap();
            let filter = Filter::parse("common_pid != 1", format).unwrap();
            let selection = if at % 2 == 0 { &narrow } else { &Selection::EVERYTHING };
            match table_program(&plan, &definition, &event, Some(&filter), selection) {
                Ok((program, shape)) => {
                    Maps::new(Some(&shape), (8, 8)).load(&program, &format!("{system}:{name} {definition:?}"));
                    loaded += 1;
                }
                Err(reason) => unsuited.push(reason),
            }
        }
    }
    // All numbers can be loaded. Only texts and arrays may be unsuitable, or too long together.
    let is_length = |reason: &Unsuited| matches!(reason, Unsuited::Length(_) | Unsuited::LongKey(_));
    assert!(unsuited.iter().all(is_length), "{unsuited:?}");
    assert!(loaded > 20 * unsuited.len() && loaded > 5000, "{loaded} programs, not {}", unsuited.len());
}

#[test]
fn the_verifier_accepts_the_programs_that_take_call_chains() {
    needs([Need::Bpf]);
    let formats = formats();
    let event = event(formats.format("sched", "sched_stat_runtime").unwrap().unwrap());
    let layout = SampleLayout::new(event.layout.format.sample_type | PERF_SAMPLE_CALLCHAIN, 0);
    let event = EventType { layout, ..event };
    for (kernel, user, most) in [(true, true, 127), (true, false, 127), (false, true, 30), (true, true, 1)] {
        for (keys, measure) in [(&["_stack"][..], Measure::Sum), (&["pid", "_stack", "_comm"], Measure::Sum)]
            .into_iter()
            .chain([(&["_stack", "_comm"][..], Measure::Distribution(Buckets::log2(1000)))])
        {
            let keys = keys.iter().map(|key| (*key).to_owned()).collect();
            let value = Some("runtime".to_owned());
            let definition = Definition { keys, value, filter: None, limit: 100, measure };
            let plan = Plan::new(&definition, &event).unwrap();
            let selection = Selection { chains: Some(Chains { kernel, user, most }), ..Selection::EVERYTHING };
            let (program, shape) = table_program(&plan, &definition, &event, None, &selection).unwrap();
            Maps::new(Some(&shape), (8, 8)).load(&program, &format!("{definition:?} {selection:?}"));
        }
    }
}

#[test]
fn the_verifier_accepts_the_programs_that_note_new_mappings() {
    needs([Need::Bpf]);
    let (formats, maps) = (formats(), Maps::new(None, (8, 8)));
    let format = |name| formats.format("sched", name).unwrap().unwrap();
    maps.load(&chain::renew_program(&format("sched_process_fork"), Some("child_pid")).unwrap(), "fork");
    maps.load(&chain::renew_program(&format("sched_process_exec"), None).unwrap(), "exec");
    maps.load(&removal_program(&format("sched_process_free"), MapUse::Since).unwrap(), "free");
}

#[test]
fn the_verifier_accepts_the_programs_that_keep_the_map_of_tasks() {
    needs([Need::Bpf]);
    let (formats, maps) = (formats(), Maps::new(None, (8, 8)));
    let format = |name| formats.format("sched", name).unwrap().unwrap();
    for ids in [TaskIds::Processes, TaskIds::Threads] {
        maps.load(&fork_program(&format("sched_process_fork"), ids).unwrap(), "fork");
    }
    maps.load(&removal_program(&format("sched_process_free"), MapUse::Tasks).unwrap(), "exit");
    maps.load(&start_program(7), "start");
}

/// Returns the span of a selector, and the type of its event.
fn span(selector: &str, formats: &FormatCollection) -> (Span, EventType) {
    let spec = parse_events(selector).unwrap().remove(0);
    let EventKind::Span(span) = &spec.kind else { panic!("{selector} is not a span") };
    let mut inputs: Vec<(Format, Vec<usize>)> = Vec::new();
    for (at, rule) in SpanRule::all(span).unwrap().iter().enumerate() {
        let EventKind::Tracepoint { system, name } = &rule.event else { panic!("{selector} has probes") };
        let mut format = formats.format(system, name).unwrap().unwrap();
        if selector.contains("str") {
            format = Arc::new(format.with_strings(&[ARGUMENTS.to_owned()]).unwrap());
        }
        if selector.contains("stack") {
            format = Arc::new(format.with_interpreter_frames().unwrap().unwrap());
        }
        let format = Format::Tracepoint(format);
        match inputs.iter_mut().find(|(known, _)| known.name() == format.name()) {
            Some((_, rules)) => rules.push(at),
            None => inputs.push((format, vec![at])),
        }
    }
    let span = Span::new(span, spec.filter.as_deref(), None, &inputs).unwrap();
    let types: Vec<EventType> =
        inputs.iter().filter_map(|(format, _)| format.tracepoint()).map(|format| event(format.clone())).collect();
    let event = span.event_type(&types).unwrap();
    (span, event)
}

#[test]
fn the_verifier_accepts_the_programs_that_write_strings() {
    needs([Need::Bpf]);
    let formats = formats();
    let narrow = Selection { tasks: Some(TaskIds::Threads), cpus: Some([0, 5].into()), ..Selection::EVERYTHING };
    let mut loaded = 0;
    for (system, name) in formats.events() {
        let format = formats.format(system, name).unwrap().unwrap();
        let is_string = |field: &&Field| points_to_text(field);
        let mut names: Vec<String> = format.fields().iter().filter(is_string).map(|field| field.name.clone()).collect();
        if system == "raw_syscalls" {
            names = vec![ARGUMENTS.to_owned()];
        }
        // BPF programs only support fields of a fixed size.
        let Ok(with_strings) = format.with_strings(&names) else { continue };
        if with_strings.strings().is_empty() {
            continue;
        }
        let event = event(Arc::new(with_strings));
        let filter = Filter::parse("common_pid != 1", event.format.tracepoint().unwrap()).unwrap();
        for types in path_types() {
            let types = KernelTypes { paths: types.as_ref(), ..KernelTypes::default() };
            let program = string_program(&event, Some(&filter), &narrow, types).unwrap();
            let maps = Maps::with_record(None, (8, 8), program.record_bytes);
            maps.load(&program.program, &format!("{system}:{name} {names:?}"));
            loaded += 1;
        }
    }
    assert!(loaded > 80, "{loaded}");
}

#[test]
fn the_verifier_accepts_programs_that_read_frames_of_an_interpreter() {
    needs([Need::Bpf]);
    let formats = formats();
    let (iterator, registers) = (NumberIterator::of(&btf(NumberIterator::needs)), registers());
    let events = [
        ("sched", "sched_switch", None),
        ("kmem", "kmalloc", None),
        ("syscalls", "sys_enter_openat", Some("filename")),
        ("raw_syscalls", "sys_enter", Some(ARGUMENTS)),
    ];
    for (system, name, string) in events {
        let names: Vec<String> = string.into_iter().map(str::to_owned).collect();
        let format = formats.format(system, name).unwrap().unwrap().with_strings(&names).unwrap();
        let event = event(Arc::new(format.with_interpreter_frames().unwrap().unwrap()));
        let paths = path_types();
        for (paths, iterator) in
            [(paths[0].as_ref(), iterator), (paths[1].as_ref(), None), (None, iterator), (None, None)]
        {
            let types = KernelTypes { paths, iterator, registers };
            let program = string_program(&event, None, &Selection::EVERYTHING, types).unwrap();
            let maps = Maps::with_record(None, (8, 8), program.record_bytes);
            maps.load(&program.program, &format!("{system}:{name} {types:?}"));
        }
    }
}

/// The format of a probe whose second argument is not aligned, as the kernel places it.
const PROBE: &str = "name: f\nID: 0\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:unsigned long __probe_ip;\toffset:8;\tsize:8;\tsigned:0;\n\
    \tfield:s32 a;\toffset:16;\tsize:4;\tsigned:1;\n\
    \tfield:u64 b;\toffset:20;\tsize:8;\tsigned:0;\n\n\
    print fmt: \"(%lx)\", REC->__probe_ip\n";

#[test]
fn the_verifier_accepts_the_programs_of_probes_and_of_timers_that_read_frames() {
    needs([Need::Bpf]);
    if cfg!(not(target_arch = "x86_64")) {
        skip(Need::Bpf, "programs read the registers of x86-64 only");
    }
    let bytes = fs::read("/sys/kernel/btf/vmlinux").ok();
    let iterator =
        bytes.and_then(|bytes| NumberIterator::of(&Btf::parse(&bytes, Enumerators::Skipped, NumberIterator::needs)?));
    let format = EventFormat::parse("uprobe", PROBE).unwrap().with_interpreter_frames().unwrap().unwrap();
    let filter = Filter::parse("a > 3", &format).unwrap();
    let event = event(Arc::new(format));
    let arguments = vec!["a=%di:s32".to_owned(), "b=$stack".to_owned()];
    let places = vec![ProbedPlace { offset: 0, semaphore: None, arguments }];
    let probed = ProbedCode::File(SharedFile::open(Path::new("/proc/self/exe")).unwrap());
    let definition = ProbeDefinition { probed, fire_at: FireAt::Entry, places };
    for iterator in [iterator, None] {
        let types = KernelTypes { paths: None, registers: None, iterator };
        let load = |program: StringProgram, of| {
            let maps = Maps::with_record(None, (8, 8), program.record_bytes);
            maps.load_as(of, &program.program, &format!("{of:?} {types:?}"));
        };
        for filter in [None, Some(&filter)] {
            let program = probe_program(&event, &definition, filter, (&Selection::EVERYTHING, types)).unwrap();
            load(program, ProgramType::Kprobe);
        }
        load(frames_program(&Selection::EVERYTHING, types).unwrap(), ProgramType::PerfEvent);
    }
}

#[test]
fn the_verifier_accepts_the_programs_of_spans() {
    needs([Need::Bpf]);
    let formats = formats();
    let irq = "span:i=irq:irq_handler_entry..irq:irq_handler_exit/ret > 0 && duration > 5/key=_cpu+irq/";
    let declarations = [
        ("syscall/min=10us,name=read|openat/", &["name", "comm"][..], Some("ret < 0")),
        ("syscall", &["begin._comm", "end.ret", "_tid"], Some("begin.id != 3")),
        (irq, &["irq", "begin.irq", "_event"], Some("end.ret == 1")),
        ("span:w=sched:sched_wakeup..sched:sched_waking//key=pid/", &["begin.comm"], Some("begin.comm ~ \"a*\"")),
        ("span:s=sched:sched_wakeup..sched:sched_wakeup//key=pid/", &["pid"], None),
        ("offcpu/state=disk|sleeping, min=1us/", &["comm", "pid", "state"], None),
        ("offcpu/comm=a*/", &["begin.next_comm", "_tid", "_pid"], Some("begin.prev_state != 1")),
        ("oncpu/why=dead/", &["comm", "why"], None),
        ("runqueue/comm=*b/", &["comm", "prev_comm", "pid"], None),
        ("softirq", &["name", "_cpu"], None),
        ("irq", &["irq"], None),
        ("workqueue/min=10us/", &["function", "begin.function", "work"], Some("work != 3")),
        ("hrtimer", &["function", "timer"], None),
    ];
    for (selector, keys, filter) in declarations {
        let (span, event) = span(selector, &formats);
        for measure in [Measure::Sum, Measure::Distribution(Buckets::log2(1000))] {
            let keys = keys.iter().map(|key| (*key).to_owned()).collect();
            let value = Some("duration".to_owned());
            let definition = Definition { keys, value, filter: filter.map(str::to_owned), limit: 10, measure };
            let plan = Plan::new(&definition, &event).unwrap();
            let input = SelectedInput { filter: None, selection: Selection::EVERYTHING };
            let inputs = vec![input; span.steps().count()];
            // Which task work and timers belong to depends on more than their begin and their end.
            let are_selected = !selector.starts_with("workqueue") && !selector.starts_with("hrtimer");
            for tasks in [SpanTasks::ALL, SpanTasks { own: Some(7), own_threads: vec![7, 8], are_selected }] {
                let (inputs, tasks) = (&inputs, &tasks);
                let selected = SelectedSpan { span: &span, event: &event, inputs, tasks, context: None };
                let SpanPrograms { programs, open_bytes, shape, .. } =
                    span_programs(selected, (&plan, &definition), Hook::Tracepoints).unwrap();
                let maps = Maps::new(Some(&shape), open_bytes);
                programs.iter().for_each(|(_, program)| maps.load(program, selector));
                programs.iter().for_each(|(input, _)| maps.load_raw(&witness_program(*input), selector));
            }
        }
    }
}

#[test]
fn the_verifier_accepts_the_programs_that_write_pairs() {
    needs([Need::Bpf]);
    let formats = formats();
    let own = Own { process: Some(std::process::id()), threads: vec![7], owner: Owner::Task, registers: None };
    let cpus = Some([0, 1, 5].into());
    let narrow = Selection { own, tasks: Some(TaskIds::Threads), cpus, cgroups: 2, ..Selection::EVERYTHING };
    for selector in [
        "syscall",
        "syscall/str/",
        "syscall/min=1s/",
        "syscall/min=1s,stack/",
        "syscall/str,stack/",
        "syscall/min=10us,name=read|openat,comm=bash,failed,str/",
        "syscall/ret < 0 && duration > 5 && name != openat/",
    ] {
        let (span, event) = span(selector, &formats);
        for selection in [&Selection::EVERYTHING, &narrow] {
            let filter = |input: usize| {
                let Format::Span(format) = &event.format else { panic!("{selector}") };
                Filter::parse("id != 3", format.inputs[input].format.tracepoint().unwrap()).unwrap()
            };
            let filters = [filter(0), filter(1)];
            let (filters, kernel_frames) = (filters.each_ref().map(Some), KernelFrames::Noted);
            let selected = SelectedCalls { span: &span, event: &event, filters, kernel_frames };
            // Without the iterator, the loops over names and frames are too much for the verifier. Then there are no paths.
            let is_too_much = |types: &Option<PathTypes>| {
                selector == "syscall/str,stack/" && types.is_some_and(|types| types.iterator.is_none())
            };
            for types in path_types().into_iter().filter(|types| !is_too_much(types)) {
                let iterator = types.and_then(|types| types.iterator);
                let types = KernelTypes { paths: types.as_ref(), iterator, registers: None };
                let programs = pair_programs(selected, selection, types).unwrap();
                let PairPrograms { begin, end, exit, open_bytes, record_bytes } = programs;
                let maps = Maps::with_record(None, open_bytes, record_bytes.unwrap_or(8));
                [begin, end, exit].iter().for_each(|program| maps.load_raw(program, selector));
            }
        }
    }
}
