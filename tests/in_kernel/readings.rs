//! Checks that the readings of a table in the kernel have each event once, whether they exchange the table or not.

use std::{
    fs,
    sync::{Arc, mpsc},
    thread,
};

use perf_prof_events::{
    aggregate::{Amount, Buckets, Definition, Distribution, KeyPart, Measure, Plan},
    event::{EventType, Format},
};
use perf_prof_format::{
    abi::{PERF_SAMPLE_CPU, PERF_SAMPLE_RAW, PERF_SAMPLE_TID, PERF_SAMPLE_TIME},
    record::SampleLayout,
    tracefs::EventFormat,
};
use perf_prof_in_kernel::{
    load::{Reading, Room, SelectedTasks, TableInKernel, Tracepoint},
    select::Selection,
    table::table_program,
};
use perf_prof_system::CallError;

use super::needs_bpf;
use crate::harness::{
    capture::EVENTS,
    machine::{Need, needs},
    seccomp::refuse_in_this_thread,
    task::{allowed_cpus, gettid, pin},
};

const NAME: &str = "sys_enter_getpgid";

/// The command of bpf(2) that copies the rows of a table.
pub const BPF_MAP_LOOKUP_BATCH: u32 = 24;

/// Loads and attaches a histogram of the arguments of getpgid(), by thread.
fn table() -> TableInKernel {
    let file = |name: &str| fs::read_to_string(format!("{EVENTS}/syscalls/{NAME}/{name}")).unwrap();
    let format = EventFormat::parse("syscalls", &file("format")).unwrap();
    let members = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_RAW;
    let layout = SampleLayout::new(members, 0);
    let event = EventType { alias: None, format: Format::Tracepoint(Arc::new(format)), layout, max_stack: None };
    let measure = Measure::Distribution(Buckets::log2(1));
    let (keys, value) = (vec!["_tid".to_owned()], Some("pid".to_owned()));
    let definition = Definition { keys, value, filter: None, limit: 1000, measure };
    let plan = Plan::new(&definition, &event).unwrap();
    let (program, shape) = table_program(&plan, &definition, &event, None, &Selection::EVERYTHING).unwrap();
    let tracepoint = Tracepoint { name: NAME, id: file("id").trim().parse().unwrap() };
    let room = Room::new(&shape, definition.limit, 64 << 20);
    let selected = SelectedTasks::default();
    let mut table = TableInKernel::load(tracepoint, (&program, shape), &selected, room).unwrap();
    table.attach(Some(tracepoint)).unwrap();
    table
}

/// Calls getpgid() with these numbers. The processes need not exist.
fn call(numbers: impl Iterator<Item = u32>) {
    // SAFETY: getpgid takes no pointer.
    numbers.for_each(|number| _ = unsafe { libc::syscall(libc::SYS_getpgid, number) });
}

/// Adds what a reading has of a thread.
fn add(to: &mut Distribution, reading: Result<Reading, CallError>, tid: u32) {
    for row in reading.unwrap().rows.iter().filter(|row| row.key[..] == [KeyPart::Number(tid.into())]) {
        let Amount::Distribution(of) = &row.amount else { panic!("{row:?}") };
        assert_eq!(row.count, of.count);
        to.merge(of);
    }
}

fn expected(numbers: impl Iterator<Item = u32>) -> Distribution {
    let mut all = Distribution::default();
    numbers.for_each(|number| all.add(number.into(), Buckets::log2(1)));
    all
}

#[test]
fn a_reading_in_place_leaves_to_the_next_one_what_comes_later() {
    needs_bpf();
    let (mut table, tid) = (table(), gettid());
    let of_thread = |reading| {
        let mut found = Distribution::default();
        add(&mut found, reading, tid);
        found
    };
    call(1..100);
    assert_eq!(of_thread(table.read_in_place()), expected(1..100));
    assert_eq!(of_thread(table.read_in_place()), Distribution::default());
    call(200..300);
    assert_eq!(of_thread(table.read_in_place()).sum, expected(200..300).sum);
    call(20..30);
    assert_eq!(of_thread(table.read()).sum, expected(20..30).sum);
    call(5..7);
    assert_eq!(of_thread(table.read()), expected(5..7), "the new table has nothing of before");
    assert_eq!(of_thread(table.read_in_place()), Distribution::default());
}

/// The kernel lets no thread with a filter copy a table.
#[test]
fn a_reading_that_fails_after_its_exchange_leaves_its_events_to_the_next_one() {
    needs_bpf();
    let (mut table, tid) = (table(), gettid());
    for in_place in [false, true] {
        call(1..100);
        let failed = thread::scope(|scope| {
            let refused = scope.spawn(|| {
                refuse_in_this_thread(libc::SYS_bpf, Some(BPF_MAP_LOOKUP_BATCH));
                table.read().unwrap_err().errno()
            });
            refused.join().unwrap()
        });
        assert_eq!(failed, libc::EPERM);
        call(200..300);
        let mut found = Distribution::default();
        if !in_place {
            // The first one has what the table had before the exchange.
            add(&mut found, table.read(), tid);
            assert_eq!(found, expected(1..100));
        }
        add(&mut found, table.read_in_place(), tid);
        assert_eq!(found, expected((1..100).chain(200..300)));
        add(&mut found, table.read(), tid);
        assert_eq!(found.count, 199);
    }
}

/// Each reading copies rows to which another thread adds at this moment.
#[test]
fn readings_during_events_have_each_event_once() {
    needs_bpf();
    needs([Need::TwoCpus]);
    let (mut table, mut found) = (table(), Distribution::default());
    // A program does not run on a CPU where bpf(2) copies a table.
    let cpus = allowed_cpus();
    let (own, other) = (cpus[0], cpus[1]);
    pin(own);
    let (sender, tid) = mpsc::channel();
    let calling = thread::spawn(move || {
        pin(other);
        sender.send(gettid()).unwrap();
        call(0..400_000);
    });
    let tid = tid.recv().unwrap();
    let (mut readings, before) = (0, table.missed());
    while !calling.is_finished() {
        let is_in_place = readings % 3 != 2;
        add(&mut found, if is_in_place { table.read_in_place() } else { table.read() }, tid);
        readings += 1;
    }
    calling.join().unwrap();
    add(&mut found, table.read(), tid);
    assert!(readings > 3, "{readings}");
    // Another test may copy a table on the other CPU. The kernel counts the events that the program misses then.
    match table.missed() - before {
        0 => assert_eq!(found, expected(0..400_000)),
        missed => assert!((400_000 - missed..=400_000).contains(&found.count), "{} and {missed}", found.count),
    }
}
