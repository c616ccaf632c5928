//! Half a million calls on each of up to two CPUs at the same time. Each call is recorded once or counted as lost.

use std::fs;

use perf_prof_format::record::{Record, Records};

use crate::harness::{
    machine::{Need, needs},
    recorder::{CALL, RecordRun, record_workload},
    task::{getppid, pin},
};

/// The number of calls on each CPU.
const CALLS: u64 = 500_000;

/// The workload, with one thread on each CPU.
pub fn workload() {
    let on = |cpu: u32| {
        move || {
            pin(cpu);
            getppid(CALLS as usize);
        }
    };
    let threads: Vec<_> = cpus().into_iter().map(|cpu| std::thread::spawn(on(cpu))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn cpus() -> Vec<u32> {
    perf_prof_system::procfs::online_cpus().unwrap().iter().take(2).collect()
}

fn burst(options: &[&str]) -> RecordRun {
    record_workload(&[&["-e", CALL], options].concat(), "burst")
}

/// Returns the task and the time of each call, which follow the id and the address in a sample. They identify the call,
/// because times are in ns and a call takes many of them.
fn calls(records: &[u8]) -> Vec<[u8; 16]> {
    let mut walk = Records::new(records);
    let samples = walk.by_ref().filter(|record| Record::parse(record) == Record::Sample);
    let calls = samples.map(|sample| sample[24..40].try_into().unwrap()).collect();
    assert!(walk.rest().is_empty());
    calls
}

/// Checks that each call is recorded once or counted as lost. Returns the number of lost calls.
fn check(options: &[&str]) -> u64 {
    let recorded = burst(options);
    assert_eq!(recorded.status, 0, "{}", recorded.said);
    let mut files = vec![recorded.path()];
    if recorded.path().is_dir() {
        files = fs::read_dir(recorded.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    }
    let files: Vec<(bool, Vec<u8>)> =
        files.iter().map(|path| (path.extension().is_none_or(|of| of == "data"), fs::read(path).unwrap())).collect();
    let mut found = Vec::new();
    for (has_header, bytes) in &files {
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        let records = if *has_header { &bytes[word(40)..word(40) + word(48)] } else { &bytes[..] };
        found.extend(calls(records));
    }
    let all = found.len() as u64;
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len() as u64, all, "{options:?}: some calls are recorded twice");
    let (said, lost) = (recorded.said_number("samples"), recorded.said_number("lost"));
    let made = CALLS * cpus().len() as u64;
    assert_eq!((all, said + lost), (said, made), "{options:?}: {}", recorded.said);
    println!("{options:?}: {made} calls, {said} recorded, {lost} lost");
    lost
}

#[test]
fn every_call_is_recorded_once_or_counted_as_lost() {
    needs([Need::Tracefs, Need::Perf]);
    for options in [&["-m", "4"][..], &["--threads", "-m", "4"]] {
        check(options);
    }
}

/// The rings are large enough while the reader waits for a CPU for a usual time. Other programs may make it wait
/// longer, so the test may try several times.
#[test]
fn large_rings_lose_nothing() {
    needs([Need::Tracefs, Need::Perf]);
    let lost: Vec<u64> = (0..5).map(|_| check(&["-m", "1024"])).take_while(|&lost| lost > 0).collect();
    assert!(lost.len() < 5, "{lost:?}");
}
