//! bpf(2): maps contain what is stored in them, and a hand-written BPF program counts the calls of this thread.

use std::{
    collections::BTreeMap,
    fs,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use perf_prof_format::abi::{
    PERF_TYPE_TRACEPOINT,
    bpf::{
        BPF_ADD, BPF_ALU64, BPF_ANY, BPF_ATOMIC, BPF_CALL, BPF_DW, BPF_EXIT, BPF_FUNC_GET_CURRENT_PID_TGID,
        BPF_FUNC_MAP_LOOKUP_ELEM, BPF_IMM, BPF_JEQ, BPF_JMP, BPF_JNE, BPF_K, BPF_LD, BPF_MEM, BPF_MOV, BPF_NOEXIST,
        BPF_PSEUDO_MAP_FD, BPF_ST, BPF_STX, BPF_W, BPF_X, MapType, ProgramType,
    },
    perf_event_attr,
};
use perf_prof_system::{
    CallError,
    bpf::{CounterPage, Map, MapDefinition, Program},
    perf::{self, Attach},
    procfs,
};

use super::run;
use crate::harness::{
    counting::objects,
    machine::{Need, needs, skip},
    run::{said, stdout},
    task::{getppid, gettid},
};

const HASH: MapDefinition<'static> = MapDefinition {
    name: "test",
    map_type: MapType::Hash,
    key_size: 8,
    value_size: 16,
    entries: 10_000,
    flags: 0,
    inner: None,
};

/// Ends the test as ignored if the kernel does not let this process use BPF.
fn may<T>(result: Result<T, CallError>) -> T {
    match result {
        Err(error) if [libc::EPERM, libc::ENOSYS].contains(&error.errno()) => skip(Need::Bpf, error),
        result => result.unwrap(),
    }
}

#[test]
fn a_hash_gives_back_what_was_put_into_it() {
    needs([Need::Bpf]);
    let map = may(Map::new(&HASH));
    let value = |number: u64| [number.to_ne_bytes(), (!number).to_ne_bytes()].concat();
    for number in 0..10_000u64 {
        map.set(&number.to_ne_bytes(), &value(number), BPF_NOEXIST).unwrap();
    }
    let again = map.set(&7u64.to_ne_bytes(), &value(8), BPF_NOEXIST).unwrap_err();
    assert_eq!(again.errno(), libc::EEXIST);
    let full = map.set(&10_000u64.to_ne_bytes(), &value(8), BPF_ANY).unwrap_err();
    assert_eq!(full.errno(), libc::E2BIG);
    assert_eq!(map.get(&7u64.to_ne_bytes()).unwrap(), Some(value(7)));
    assert!(map.remove(&7u64.to_ne_bytes()).unwrap());
    assert!(!map.remove(&7u64.to_ne_bytes()).unwrap());
    assert_eq!(map.get(&7u64.to_ne_bytes()).unwrap(), None);

    let mut found = BTreeMap::new();
    map.for_each(|key, value| {
        let key = u64::from_ne_bytes(key.try_into().unwrap());
        assert_eq!(found.insert(key, value.to_vec()), None);
    })
    .unwrap();
    assert_eq!(found, (0..10_000).filter(|&number| number != 7).map(|number| (number, value(number))).collect());
}

#[test]
fn an_empty_hash_has_no_entries_to_read() {
    needs([Need::Bpf]);
    may(Map::new(&HASH)).for_each(|_, _| panic!("an entry")).unwrap();
}

#[test]
fn an_array_of_each_cpu_has_a_value_for_each_of_them() {
    needs([Need::Bpf]);
    let map = may(Map::new(&MapDefinition {
        map_type: MapType::PerCpuArray,
        key_size: 4,
        value_size: 12,
        entries: 1,
        ..HASH
    }));
    let values = map.get(&0u32.to_ne_bytes()).unwrap().unwrap();
    assert!(values.len() >= 16 * std::thread::available_parallelism().unwrap().get(), "{}", values.len());
    assert_eq!((values.len() % 16, values.iter().max()), (0, Some(&0)));
}

/// Returns the 8 bytes of a BPF instruction as a word.
fn instruction(opcode: u8, destination: u8, source: u8, offset: i16, number: i32) -> u64 {
    let [low, high] = offset.to_ne_bytes();
    let registers = if cfg!(target_endian = "little") { destination | source << 4 } else { destination << 4 | source };
    let [first, second, third, fourth] = number.to_ne_bytes();
    u64::from_ne_bytes([opcode, registers, low, high, first, second, third, fourth])
}

/// Returns a BPF program that adds one to the first word of the array `counters` at each event of this thread.
fn counting(counters: &Map) -> Vec<u64> {
    let current = u64::from(std::process::id()) << 32 | u64::from(gettid());
    let descriptor = counters.as_fd().as_raw_fd();
    vec![
        instruction(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_GET_CURRENT_PID_TGID),
        instruction(BPF_LD | BPF_IMM | BPF_DW, 1, 0, 0, current as i32),
        instruction(0, 0, 0, 0, (current >> 32) as i32),
        instruction(BPF_JMP | BPF_JNE | BPF_X, 0, 1, 9, 0),
        instruction(BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 0),
        instruction(BPF_LD | BPF_IMM | BPF_DW, 1, BPF_PSEUDO_MAP_FD, 0, descriptor),
        instruction(0, 0, 0, 0, 0),
        instruction(BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0),
        instruction(BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -4),
        instruction(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_MAP_LOOKUP_ELEM),
        instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2, 0),
        instruction(BPF_ALU64 | BPF_MOV | BPF_K, 1, 0, 0, 1),
        instruction(BPF_STX | BPF_ATOMIC | BPF_DW, 0, 1, 0, i32::from(BPF_ADD)),
        instruction(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 1),
        instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    ]
}

/// Opens a disabled event for the entry of a system call.
fn open_event(call: &str) -> OwnedFd {
    let id = fs::read_to_string(format!("/sys/kernel/tracing/events/syscalls/sys_enter_{call}/id")).unwrap();
    let mut attr = perf_event_attr { type_: PERF_TYPE_TRACEPOINT, ..perf_event_attr::default() };
    attr.config = id.trim().parse().unwrap();
    attr.set_disabled(1);
    perf::open(&attr, Attach::Thread(0, None)).unwrap()
}

/// Attaches a BPF program to the entry of a system call. It stays attached until the first of the returned descriptors
/// is closed.
fn attach(program: &Program, call: &str) -> (Option<OwnedFd>, OwnedFd) {
    let event = open_event(call);
    (program.attach_to_event(event.as_fd()).unwrap(), event)
}

#[test]
fn a_program_counts_each_call_until_it_is_detached() {
    needs([Need::Bpf, Need::Tracefs]);
    if !procfs::is_in_first_pid_namespace() {
        skip(Need::Bpf, "this process is in a PID namespace");
    }
    let (counters, page) = may(CounterPage::new("counters", 2));
    let program = may(Program::load("counting", ProgramType::Tracepoint, &counting(&counters)).map_err(|e| e.error));
    // First without links, as on older kernels, and then as on this kernel.
    let without_link = || {
        let event = open_event("getppid");
        perf::set_bpf(event.as_fd(), &program).unwrap();
        (None, event)
    };
    for attach in [&without_link as &dyn Fn() -> _, &|| attach(&program, "getppid")] {
        page.set_word(0, 0);
        getppid(1);
        let (link, event) = attach();
        getppid(100_000);
        assert_eq!([page.word(0), page.word(1)], [100_000, 0]);
        assert_eq!(program.recursion_misses().unwrap(), 0);
        // The event need not be disabled, because a map can be exchanged while BPF programs run.
        page.set_word(0, 5);
        getppid(1);
        assert_eq!(page.word(0), 6);
        // With a link, the BPF program ends when the link is closed. Closing the event takes long, so it is closed
        // later.
        let closed_last = link.is_some().then_some(event);
        drop(link);
        getppid(1000);
        assert_eq!(page.word(0), 6);
        drop(closed_last);
    }
}

/// The event belongs to the thread that opened it. The BPF program still runs for other threads after the end of that
/// thread.
#[test]
fn a_program_stays_when_the_thread_that_attached_it_ends() {
    needs([Need::Bpf, Need::Tracefs]);
    if !procfs::is_in_first_pid_namespace() {
        skip(Need::Bpf, "this process is in a PID namespace");
    }
    let (counters, page) = may(CounterPage::new("counters", 1));
    let program = may(Program::load("counting", ProgramType::Tracepoint, &counting(&counters)).map_err(|e| e.error));
    let _attached = std::thread::scope(|scope| scope.spawn(|| attach(&program, "getppid")).join().unwrap());
    std::thread::sleep(std::time::Duration::from_millis(50));
    getppid(1000);
    assert_eq!(page.word(0), 1000);
}

#[test]
fn events_are_counted_also_where_the_kernel_takes_no_more_programs() {
    needs([Need::Bpf, Need::Tracefs]);
    /// `BPF_TRACE_MAX_PROGS` in `kernel/trace/bpf_trace.c`.
    const MOST: usize = 64;
    let (counters, _page) = may(CounterPage::new("counters", 1));
    let load = || may(Program::load("counting", ProgramType::Tracepoint, &counting(&counters)).map_err(|e| e.error));
    let _attached: Vec<_> = (0..MOST).map(|_| attach(&load(), "umask")).collect();
    let work = ["bash", "-c", "for ((i = 0; i < 2000; i++)); do umask 022; done"].map(str::to_owned);
    for interval in [&[][..], &["-i", "10ms"]] {
        let args = ["top", "syscalls:sys_enter_umask", "--by", "tid", "--sum", "mask", "--json", "-v"];
        let output = run("auto", &[&args[..], interval].concat(), &work);
        let total = objects(&stdout(&output)).pop().unwrap();
        assert_eq!([&total["events"], &total["rows"][0]["sums"]["mask"]], [2000, 2000 * 0o22], "{total}");
        assert!(said(&output).contains("too many BPF programs are attached"), "{}", said(&output));
    }
}

#[test]
fn the_maps_of_an_array_of_maps_are_exchanged() {
    needs([Need::Bpf]);
    let (first, second) = (may(Map::new(&HASH)), may(Map::new(&MapDefinition { entries: 3, ..HASH })));
    let slots = may(Map::new(&MapDefinition {
        map_type: MapType::ArrayOfMaps,
        key_size: 4,
        value_size: 4,
        entries: 1,
        inner: Some(&first),
        ..HASH
    }));
    let inside = || slots.get(&0u32.to_ne_bytes()).unwrap();
    slots.set_descriptor(0, first.as_fd()).unwrap();
    let before = inside();
    slots.set_descriptor(0, second.as_fd()).unwrap();
    assert!(before.is_some() && inside() != before);
}

#[test]
fn a_refused_program_has_the_text_of_the_verifier() {
    needs([Need::Bpf]);
    may(Map::new(&HASH));
    // The program reads register 0 at its end, and never writes it.
    let refused = Program::load("refused", ProgramType::Tracepoint, &[instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)]);
    let error = refused.unwrap_err();
    assert!(error.log.contains("R0 !read_ok"), "{error}: {}", error.log);
    assert!(error.to_string().starts_with("bpf BPF_PROG_LOAD: "), "{error}");
}
