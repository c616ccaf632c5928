//! More than half a million calls on each CPU at once: each is in the recording once, or counted as lost.

use std::fs;

use perf_prof::record::{Record, Records};

use crate::harness::{CALL, Recorded, command, finished, skipped};

/// How many calls a CPU makes.
const CALLS: u64 = 500_000;

/// Has the workload make calls.
const BURST: &str = "PERF_PROF_TEST_BURST";

/// The workload: a thread on each CPU.
#[test]
fn workload() {
    if std::env::var_os(BURST).is_none() {
        return;
    }
    let on = |cpu: u32| {
        move || {
            // SAFETY: the set is written by CPU_SET and read by the call, which takes its size; 0 is the calling thread.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(cpu as usize, &mut set);
                assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
            }
            for _ in 0..CALLS {
                // SAFETY: getppid takes no pointer and cannot fail.
                unsafe { libc::syscall(libc::SYS_getppid) };
            }
        }
    };
    let threads: Vec<_> = cpus().into_iter().map(|cpu| std::thread::spawn(on(cpu))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn cpus() -> Vec<u32> {
    perf_prof::sys::procfs::online_cpus().unwrap().iter().take(2).collect()
}

fn burst(options: &[&str]) -> Recorded {
    let dir = tempfile::tempdir().unwrap();
    let own = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
    let args = [&["-e", CALL][..], options, &["--", &own, "--exact", "burst::workload", "--nocapture"]].concat();
    let output = command(&dir, &args).env(BURST, "1").output().unwrap();
    finished(dir, output.status.code().unwrap(), &output.stderr)
}

/// Who made each call, and when: what stands behind a sample's id and place. Times are of nanoseconds, and a call takes many.
fn calls(records: &[u8]) -> Vec<[u8; 16]> {
    let mut walk = Records::new(records);
    let samples = walk.by_ref().filter(|record| Record::parse(record) == Record::Sample);
    let calls = samples.map(|sample| sample[24..40].try_into().unwrap()).collect();
    assert!(walk.rest().is_empty());
    calls
}

/// Checks that nothing is missing and nothing is there twice.
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
    assert_eq!(found.len() as u64, all, "{options:?}: some are there twice");
    let (said, lost) = (recorded.said_number("samples"), recorded.said_number("lost"));
    let made = CALLS * cpus().len() as u64;
    assert_eq!((all, said + lost), (said, made), "{options:?}: {}", recorded.said);
    println!("{options:?}: {made} calls, {said} recorded, {lost} lost");
    lost
}

#[test]
fn every_call_is_recorded_once_or_counted_as_lost() {
    if skipped() {
        return;
    }
    for options in [&["-m", "4"][..], &["--threads", "-m", "4"]] {
        check(options);
    }
}

/// Rings that hold what comes while the reader waits for a CPU. Other programs may keep it from all CPUs for longer than that.
#[test]
fn large_rings_lose_nothing() {
    if skipped() {
        return;
    }
    let lost: Vec<u64> = (0..5).map(|_| check(&["-m", "1024"])).take_while(|&lost| lost > 0).collect();
    assert!(lost.len() < 5, "{lost:?}");
}
