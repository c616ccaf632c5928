//! Tests that the pairs from programs give the same spans as the samples of both events.

use perf_prof_events::derive::{Derivation, PairChain, PairLayout, PairSplitter, ProgramFrames};
use perf_prof_format::{
    abi::{
        PERF_CONTEXT_KERNEL, PERF_CONTEXT_USER, PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_CPU, PERF_SAMPLE_IDENTIFIER,
        PERF_SAMPLE_RAW, PERF_SAMPLE_TID, PERF_SAMPLE_TIME, system_calls,
    },
    record::SampleLayout,
    tracefs::{ARGUMENTS, Filter, string_of_argument},
    value::Value,
};

use super::*;
use crate::{
    span::pairs::{KEPT_STRING_BYTES, KernelFrames, PairCodes, pair_codes},
    strings::KernelTypes,
};

/// The address of the registers of a call in the kernel.
const REGISTERS: u64 = 0xffff_c900_0000_3f58;
/// The numbers of the calls: read(), write(), openat(), nanosleep() and rt_sigreturn(), of 64-bit and of 32-bit programs.
const CALLS: [[i64; 5]; 2] = [[0, 1, 257, 35, 15], [3, 4, 295, 162, 173]];

/// Prepares a span for programs that write pairs.
fn prepare_pairs(selector: &str) -> Prepared {
    let mut prepared = prepare_with(selector, |name| match selector.contains("str") {
        true => Arc::new(shipped(name).with_strings(&[ARGUMENTS.to_owned()]).unwrap()),
        false => shipped(name),
    });
    let members = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_RAW;
    prepared.inputs.iter_mut().for_each(|input| input.layout = SampleLayout::new(members, 0));
    prepared.event = prepared.span.event_type(&prepared.inputs).unwrap();
    prepared
}

/// Returns the sample that the kernel writes.
fn sample(data: &[u8], Running { process, thread, cpu }: Running, time: u64) -> Vec<u8> {
    let members = [1, u64::from(process) | u64::from(thread) << 32, time, cpu.into()];
    let size = (data.len() + 4).next_multiple_of(8) - 4;
    let mut body =
        [members.map(u64::to_ne_bytes).concat(), (size as u32).to_ne_bytes().to_vec(), data.to_vec()].concat();
    body.resize(32 + 4 + size, 0);
    [&(9u64 | ((8 + body.len()) as u64) << 48).to_ne_bytes()[..], &body].concat()
}

/// The begin or the end of a call.
struct Call {
    is_end: bool,
    id: i64,
    words: [u64; 6],
    is_of_32_bits: bool,
    running: Running,
    time: u64,
}

impl Call {
    /// Returns the data of the tracepoint, in which the call is marked.
    fn data(&self, prepared: &Prepared) -> Vec<u8> {
        let format = prepared.inputs[usize::from(self.is_end)].format.tracepoint().unwrap();
        let common = u64::from(format.id) | u64::from(self.running.thread) << 32;
        let words = if self.is_end { &self.words[..1] } else { &self.words[..] };
        let is_compat = self.is_of_32_bits && self.id >= 0;
        let number = if is_compat { self.id + system_calls::COMPAT } else { self.id };
        [common, number as u64].iter().chain(words).flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn registers(&self) -> Vec<u8> {
        let places = if self.is_of_32_bits { [40, 88, 96, 104, 112, 32] } else { [112, 104, 96, 56, 72, 64] };
        let mut registers = vec![0xa5; 168];
        let mut put = |at: usize, word: u64| registers[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        // In a 32-bit program, the upper halves may contain anything.
        let upper = if self.is_of_32_bits { 7 << 32 } else { 0 };
        places.into_iter().zip(self.words).for_each(|(at, word)| put(at, word | upper));
        put(120, self.id as u64);
        put(136, if self.is_of_32_bits { 0x23 } else { 0x33 } | 0x5a << 16);
        registers
    }
}

/// Returns calls of several threads. Some ends are missing.
fn calls(seed: u64) -> Vec<Call> {
    let chosen = &mut Chosen(seed);
    let mut open: [Option<(bool, i64)>; 4] = [None; 4];
    let mut time = 1_000_000_000;
    let mut next = || {
        let thread = chosen.below(4);
        time += 1 + (chosen.number() >> (40 + chosen.below(24)));
        let is_open = open[thread].take().filter(|_| chosen.below(10) != 0);
        let is_of_32_bits = is_open.map_or_else(|| chosen.below(4) == 0, |(is_of_32_bits, _)| is_of_32_bits);
        let words = std::array::from_fn(|_| chosen.number() >> chosen.below(64) >> if is_of_32_bits { 32 } else { 0 });
        let running = Running { process: 50, thread: 100 + thread as u32, cpu: chosen.below(2) as u32 };
        let (is_end, id) = match is_open {
            Some((_, 15 | 173)) => (true, -1),
            Some((_, id)) => (true, id),
            None => (false, *chosen.one(&CALLS[usize::from(is_of_32_bits)])),
        };
        // Many calls fail.
        let words = match chosen.below(3) {
            0 if is_end => [-1 - chosen.below(5000) as i64; 6].map(|ret| ret as u64),
            _ => words,
        };
        open[thread] = (!is_end).then_some((is_of_32_bits, id));
        Call { is_end, id, words, is_of_32_bits, running, time }
    };
    (0..300).map(|_| next()).collect()
}

/// The span engine, and the records of the spans that it delivers.
struct Engine<'a> {
    prepared: &'a Prepared,
    engine: Box<dyn Derivation>,
    counts: Arc<SpanCounts>,
    delivered: Vec<Vec<u8>>,
}

impl<'a> Engine<'a> {
    fn new(prepared: &'a Prepared) -> Self {
        let counts = Arc::new(SpanCounts::default());
        let context = Arc::new(Context::new(Box::new(NoKernel), 0));
        context.with_tasks(|tasks| (100..104).for_each(|thread| tasks.named(thread, 0, comm(thread as u32))));
        let engine = prepared.span.start(&prepared.event, counts.clone(), context).unwrap();
        Engine { prepared, engine, counts, delivered: Vec::new() }
    }

    fn sample(&mut self, call: &Call) {
        let record = sample(&call.data(self.prepared), call.running, call.time);
        let Engine { engine, delivered, .. } = self;
        let flow = engine.sample(call.is_end.into(), &record, &mut |record| {
            delivered.push(record.to_vec());
            std::ops::ControlFlow::Continue(())
        });
        assert!(flow.is_continue());
    }

    fn pair(&mut self, [begin, end]: [&[u8]; 2]) {
        let Engine { engine, delivered, .. } = self;
        let flow = engine.pair(begin, end, &mut |record| {
            delivered.push(record.to_vec());
            std::ops::ControlFlow::Continue(())
        });
        assert!(flow.is_continue());
    }
}

/// The programs of a span, and the machine on which they run.
struct Programs {
    codes: [Code; 3],
    machine: Machine,
}

impl Programs {
    fn new(prepared: &Prepared) -> Programs {
        let of_input = |input: usize| prepared.inputs[input].format.tracepoint().unwrap();
        // A live run has this filter for the option `name=`.
        let filter =
            prepared.span.spec().options.iter().any(|option| option.name == "name").then_some("id == 257 || id == 295");
        let filters = [0, 1].map(|input| filter.map(|text| Filter::parse(text, of_input(input)).unwrap()));
        let filters = [filters[0].as_ref(), filters[1].as_ref()];
        let (span, kernel_frames) = (&prepared.span, KernelFrames::Noted);
        let span = SelectedCalls { span, event: &prepared.event, filters, kernel_frames };
        let PairCodes { codes, open_bytes, .. } =
            pair_codes(span, &Selection::EVERYTHING, KernelTypes::default()).unwrap();
        let mut machine = Machine::new((8, 8));
        machine.open = Hash::new(open_bytes);
        machine.names = Hash::new((8, KEPT_STRING_BYTES));
        Programs { codes, machine }
    }

    /// Runs the program for a begin or an end. Returns the raw data of the pair if the program writes one.
    fn run(&mut self, call: &Call) -> Option<Vec<u8>> {
        let Running { process, thread, cpu } = call.running;
        let machine = &mut self.machine;
        (machine.ids, machine.cpu, machine.time) = ((process, thread), cpu, call.time);
        machine.comm = [0; 16];
        machine.comm[..comm(thread).len()].copy_from_slice(comm(thread));
        machine.kernel = (REGISTERS, call.registers());
        let second = if call.is_end { call.words[0] } else { call.id as u64 };
        let context = [REGISTERS, second].map(u64::to_ne_bytes).concat();
        assert_eq!(machine.run(&self.codes[usize::from(call.is_end)], &context), 1);
        machine.written.pop()
    }

    fn counts(&self) -> SpanCounters {
        let words: [u64; Counters::WORDS + SpanCounters::WORDS] = self.machine.counters();
        SpanCounters::from(<[u64; SpanCounters::WORDS]>::try_from(&words[Counters::WORDS..]).unwrap())
    }
}

/// Compares the spans of pairs with those of samples. `passes` says whether the programs test all conditions of the span.
fn compare_pairs(selector: &str, passes: bool) {
    let prepared = prepare_pairs(selector);
    let mut splitter = PairSplitter::new(&prepared.inputs[0], &prepared.inputs[1]).unwrap();
    let (mut delivered, mut all_written) = (0, 0);
    for seed in 0..20 {
        let (mut expected, mut found, mut programs) =
            (Engine::new(&prepared), Engine::new(&prepared), Programs::new(&prepared));
        let mut written = 0;
        for call in calls(seed) {
            let has_name = prepared.span.spec().options.iter().any(|option| option.name == "name");
            let is_selected = !has_name || [257, 295].contains(&call.id);
            if is_selected {
                expected.sample(&call);
            }
            if let Some(raw) = programs.run(&call) {
                written += 1;
                found.pair(splitter.split(&sample(&raw, call.running, call.time)).unwrap());
            }
        }
        assert!(found.delivered == expected.delivered, "{selector} seed {seed}\n{}", programs.codes[1]);
        let (counts, of_engine) = (programs.counts(), &expected.counts);
        assert_eq!((counts.opened, counts.ended), (of_engine.opened(), of_engine.ended()), "{selector} seed {seed}");
        assert_eq!(counts.opened, counts.ended + counts.dropped + programs.machine.open.len() as u64);
        assert_eq!((counts.without_begin, found.counts.ended()), (0, 0));
        delivered += found.delivered.len();
        all_written += written;
    }
    assert!(delivered > 30, "{selector}: {delivered}");
    assert_eq!(delivered == all_written, passes, "{selector}: {delivered} of {all_written}");
}

#[test]
fn pairs_are_the_spans_that_the_engine_makes_of_samples() {
    compare_pairs("syscall", true);
    compare_pairs("syscall/min=100us/", true);
    compare_pairs("syscall/name=openat/", true);
    compare_pairs("syscall/ret > 5 && name != write/", true);
    compare_pairs("syscall/min=10us,nr=0|257/", true);
    compare_pairs("syscall/failed, comm=bash|a/", true);
    compare_pairs("syscall/errno == \"EPERM\" || duration > 100000/", true);
    compare_pairs("syscall/comm ~ \"ba*\" && duration > 100000/", true);
    // The engine tests what programs cannot test.
    compare_pairs("syscall/comm ~ \"b?sh\" && errno != \"\"/", false);
}

fn one_call(programs: &mut Programs, id: i64, end: i64) -> Option<Vec<u8>> {
    let running = Running { process: 50, thread: 101, cpu: 1 };
    let call = |is_end, id, time| Call { is_end, id, words: [0; 6], is_of_32_bits: false, running, time };
    assert_eq!(programs.run(&call(false, id, 1000)), None);
    programs.run(&call(true, end, 3000))
}

#[test]
fn the_kernels_frames_are_those_of_the_first_call_of_a_64_bit_program() {
    let prepared = prepare_pairs("syscall");
    let mut programs = Programs::new(&prepared);
    let running = Running { process: 50, thread: 101, cpu: 1 };
    let mut call = |is_end, is_of_32_bits, result, frames: &[u64]| {
        programs.machine.chain.0 = frames.to_vec();
        let raw = programs.run(&Call { is_end, id: 0, words: [result; 6], is_of_32_bits, running, time: 1000 });
        let words: [u64; KernelFrames::ALL_WORDS] = programs.machine.counters();
        (raw.is_some(), KernelFrames::noted(|word| words[word]))
    };
    assert_eq!(call(false, true, 1, &[1]), (false, [vec![], vec![]]));
    assert_eq!(call(true, true, 1, &[2]), (true, [vec![], vec![]]));
    assert_eq!(call(false, false, 0, &[3, 4]), (false, [vec![3, 4], vec![]]));
    // A new task comes to the end of fork() another way, with the result 0.
    assert_eq!(call(true, false, 0, &[6, 7]), (true, [vec![3, 4], vec![]]));
    call(false, false, 1, &[3, 4]);
    let many: Vec<u64> = (0..20).collect();
    assert_eq!(call(true, false, 1, &many), (true, [vec![3, 4], many[..16].to_vec()]));
    assert_eq!(call(false, false, 1, &[5]).1, [vec![3, 4], many[..16].to_vec()]);
}

#[test]
fn a_pair_that_cannot_be_written_is_counted() {
    let prepared = prepare_pairs("syscall");
    let mut programs = Programs::new(&prepared);
    for refuses in [-28, -2, 0] {
        programs.machine.refuses = refuses;
        assert_eq!(one_call(&mut programs, 0, 0).is_some(), refuses == 0);
    }
    let SpanCounters { opened, ended, dropped, lost, .. } = programs.counts();
    assert_eq!((opened, ended, dropped, lost), (3, 1, 1, 1));
    let words: [u64; SpanCounters::ALL_WORDS] = programs.machine.counters();
    assert_eq!(words[SpanCounters::OFF_WORD], 1);
}

#[test]
fn the_end_of_another_call_ends_nothing() {
    let prepared = prepare_pairs("syscall");
    let mut programs = Programs::new(&prepared);
    for (id, end) in [(0, 1), (0, -1), (1, 15)] {
        assert_eq!(one_call(&mut programs, id, end), None);
    }
    assert!(one_call(&mut programs, 15, -1).is_some());
    let SpanCounters { opened, ended, dropped, without_begin, .. } = programs.counts();
    assert_eq!((opened, ended, dropped, without_begin), (4, 1, 3, 3));
    // If a thread exits in a call, the begin of the call is removed.
    let running = Running { process: 50, thread: 101, cpu: 1 };
    programs.run(&Call { is_end: false, id: 0, words: [0; 6], is_of_32_bits: false, running, time: 5000 });
    assert_eq!(programs.machine.open.len(), 1);
    assert_eq!(programs.machine.run(&programs.codes[2], &[0; 8]), 1);
    assert_eq!((programs.machine.open.len(), programs.counts().opened), (0, 5));
    // These calls never return, so nothing is kept for them.
    for id in [60, 231] {
        assert_eq!(one_call(&mut programs, id, 0), None);
    }
    assert_eq!((programs.machine.open.len(), programs.counts().opened), (0, 7));
}

/// Runs the programs for a call. `strings` contains the strings that can be read when the call begins, and those that can be
/// read when it ends. Returns the strings of the begin.
fn strings_of(id: i64, words: [u64; 6], strings: [&[(u64, &[u8])]; 2]) -> Vec<Option<Vec<u8>>> {
    let prepared = prepare_pairs("syscall/str/");
    let mut splitter = PairSplitter::new(&prepared.inputs[0], &prepared.inputs[1]).unwrap();
    let mut programs = Programs::new(&prepared);
    programs.machine.arguments.extend([(316, 0b1010), (59, 0b1), (322, 0b10)]);
    let running = Running { process: 50, thread: 101, cpu: 1 };
    let mut run = |is_end, words, time, strings: &[(u64, &[u8])]| {
        programs.machine.strings = strings.iter().map(|(address, text)| (*address, text.to_vec())).collect();
        programs.run(&Call { is_end, id, words, is_of_32_bits: false, running, time })
    };
    assert_eq!(run(false, words, 1000, strings[0]), None);
    let raw = run(true, [0; 6], 3000, strings[1]).unwrap();
    assert_eq!((programs.machine.open.len(), programs.machine.names.len()), (0, 0));
    let [begin, end] = splitter.split(&sample(&raw, running, 3000)).unwrap();
    let text = |record: &[u8], input: usize, at: usize| {
        let event = &prepared.inputs[input];
        let format = event.format.tracepoint().unwrap();
        match format.field(string_of_argument(at)).unwrap().value(event.layout.raw(record).unwrap()) {
            Some(Value::Str(text)) => Some(text.to_vec()),
            _ => None,
        }
    };
    assert!((0..6).all(|at| text(end, 1, at).is_none()));
    let mut found = Engine::new(&prepared);
    found.pair([begin, end]);
    assert_eq!(found.delivered.len(), 1);
    (0..6).map(|at| text(begin, 0, at)).collect()
}

#[test]
fn strings_are_read_when_a_call_ends() {
    let strings: &[(u64, &[u8])] = &[(0x7000, b"/old"), (0x8000, b"/new"), (3, b"no string")];
    let renamed = [None, Some(b"/old".to_vec()), None, Some(b"/new".to_vec()), None, None];
    assert_eq!(strings_of(316, [3, 0x7000, 3, 0x8000, 0x7000, 0], [&[], strings]), renamed);
    assert_eq!(strings_of(1, [0x7000; 6], [strings, strings]), [const { None }; 6]);
    let long = [b'x'; 300];
    let cut = [&long[..252], b"..."].concat();
    let [_, old, ..] = &strings_of(316, [3, 0x7000, 3, 0x8000, 0, 0], [&[], &[(0x7000, &long)]])[..] else { panic!() };
    assert_eq!(old.as_deref(), Some(&cut[..]));
}

#[test]
fn the_name_of_a_program_is_read_before_it_runs() {
    let [before, after]: [&[(u64, &[u8])]; 2] = [&[(0x7000, b"/bin/true")], &[(0x7000, b"\x7fELF")]];
    let name = || Some(b"/bin/true".to_vec());
    assert_eq!(strings_of(59, [0x7000, 0, 0, 0, 0, 0], [before, after])[0], name());
    assert_eq!(strings_of(322, [3, 0x7000, 0, 0, 0, 0], [before, after])[..2], [None, name()]);
    // When the call ends, this memory contains another string.
    assert_eq!(strings_of(59, [0x7000, 0, 0, 0, 0, 0], [&[], after]), [const { None }; 6]);
}

/// Returns the call chains of the begin and of the end of a call, whose pair has this call chain.
fn chains_of(call: &Call, result: u64, chain: &[u64], most: Option<u16>) -> [Vec<u64>; 2] {
    let mut prepared = prepare_pairs("syscall");
    let without = prepared.inputs[0].layout;
    for input in &mut prepared.inputs {
        input.layout = SampleLayout::new(without.format.sample_type | PERF_SAMPLE_CALLCHAIN, 0);
        input.max_stack = most;
    }
    let chains = [
        PairChain { kernel: vec![1, 2], program: ProgramFrames::Present },
        PairChain { kernel: vec![3], program: ProgramFrames::LeftOut },
    ];
    let layout = prepared.inputs[0].layout;
    let mut splitter = PairSplitter::new(&prepared.inputs[0], &prepared.inputs[1]).unwrap().with_chains(chains);
    let mut programs = Programs::new(&prepared);
    assert_eq!(programs.run(call), None);
    let raw = programs.run(&Call { is_end: true, words: [result; 6], ..*call }).unwrap();
    let mut record = sample(&raw, call.running, call.time);
    let words = [chain.len() as u64].into_iter().chain(chain.iter().copied());
    record.splice(40..40, words.flat_map(u64::to_ne_bytes));
    splitter.split(&record).unwrap().map(|part| {
        assert_eq!(usize::from(u16::from_ne_bytes([part[6], part[7]])), part.len());
        let id = u64::from_ne_bytes(*layout.raw(part).unwrap()[PairLayout::ID..].first_chunk().unwrap());
        let number = if call.is_of_32_bits { call.id + system_calls::COMPAT } else { call.id };
        assert_eq!((layout.time(part), id), (Some(call.time), number as u64));
        let words = layout.callchain(part).unwrap().chunks_exact(8);
        words.map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
    })
}

#[test]
fn the_begin_has_the_frames_of_the_program_that_the_end_has_if_the_thread_was_there() {
    let running = Running { process: 50, thread: 101, cpu: 1 };
    let call = |id, is_of_32_bits| Call { is_end: false, id, words: [0; 6], is_of_32_bits, running, time: 1000 };
    let chain = [PERF_CONTEXT_USER, 0x10, 0x20];
    let of_end = vec![PERF_CONTEXT_KERNEL, 3];
    let of_begin = |program: &[u64]| [&[PERF_CONTEXT_KERNEL, 1, 2], program].concat();
    let [read, execve, sigreturn] = [0, 59, 15];
    assert_eq!(chains_of(&call(read, false), 0, &chain, None), [of_begin(&chain), of_end.clone()]);
    assert_eq!(chains_of(&call(read, false), 0, &chain, Some(3)), [of_begin(&chain[..2]), of_end.clone()]);
    assert_eq!(chains_of(&call(execve, false), 0, &chain, None), [of_begin(&[]), of_end.clone()]);
    assert_eq!(chains_of(&call(execve, false), -2i64 as u64, &chain, None), [of_begin(&chain), of_end.clone()]);
    assert_eq!(chains_of(&call(sigreturn, false), 7, &chain, None), [of_begin(&[]), of_end]);
    assert_eq!(chains_of(&call(read, true), 0, &chain, None), [chain.to_vec(), vec![]]);
}
