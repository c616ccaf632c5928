//! Checks that tables that the kernel fills equal the tables that perf-prof fills from samples.

use serde_json::Value as Json;

use super::{counts, json, needs_bpf, run};
use crate::harness::{
    counting::{CALL, words},
    run::said,
    script::Run,
};

#[test]
fn a_known_number_of_calls_is_counted() {
    needs_bpf();
    let object = json("always", &["top", CALL], &words(100_000, 0, 0));
    assert_eq!((&object["events"], counts(&object)), (&100_000.into(), vec![100_000]));
    assert_eq!(object["rows"][0]["comm"], "wide");
}

/// The tables of several events are loaded and read together. Their sum is shown.
#[test]
fn many_events_are_counted() {
    needs_bpf();
    let events = "syscalls:sys_enter_getpgid,syscalls:sys_exit_getpgid,syscalls:sys_enter_exit_group,\
                  syscalls:sys_enter_write,sched:sched_process_exit";
    let object = json("always", &["top", events, "--by", "event"], &words(70, 0, 0));
    let of = |event: &str| object["rows"].as_array().unwrap().iter().find(|row| row["event"] == event).cloned();
    let [entered, left] = ["syscalls:sys_enter_getpgid", "syscalls:sys_exit_getpgid"].map(|event| of(event).unwrap());
    assert_eq!([&entered["count"], &left["count"]], [70, 70]);
}

/// bpf(2) allocates memory when perf-prof starts and reads a run. Its BPF program is then attached, but cannot run.
#[test]
fn allocations_of_perf_prof_are_not_lost_events_of_a_command() {
    needs_bpf();
    for args in
        [&["top", "kmem:kmalloc"][..], &["top", "kmem:kmalloc", "--by", "stack"], &["top", "kmem:kmalloc", "-i", "20"]]
    {
        let words = ["sh", "-c", "for i in 1 2 3 4 5; do ls / >/dev/null; done"].map(str::to_owned);
        let is_whole = || {
            let object = json("always", args, &words);
            assert!(object["events"].as_u64() > Some(0), "{object}");
            (&object["partial"], &object["lost"]) == (&false.into(), &Json::Null)
        };
        // On a busy machine, a CPU may allocate for the command and for perf-prof at the same time: the program then misses
        // one of the two, and nobody knows which.
        assert!((0..5).any(|_| is_whole()), "{args:?}");
    }
}

#[test]
fn a_message_says_that_the_kernel_counts() {
    needs_bpf();
    let said = said(&run("auto", &["top", CALL, "-v"], &words(1, 0, 0)));
    assert!(said.contains(&format!("{CALL}: counted in the kernel")), "{said}");
}

/// The map is small at first, and grows while it is filled. If perf-prof waits long for a CPU, the map may be full for
/// a moment. Keys without room are counted.
#[test]
fn many_keys_are_kept() {
    needs_bpf();
    let object = json("always", &["top", CALL, "--by", "pid"], &words(200_000, 0, 0));
    let (rows, others) = (counts(&object), object["others"].as_u64().unwrap());
    assert_eq!(rows.len() as u64 + others, 200_000);
    assert!(rows.len() > 131_072 && rows.iter().all(|&count| count == 1), "{}", rows.len());
}

/// Returns the object without times and rates, which differ between runs.
fn without_times(mut object: Json) -> Json {
    let rows = object["rows"].as_array().unwrap().clone();
    let rows = rows.into_iter().map(|mut row| {
        row.as_object_mut().unwrap().remove("per_second");
        row
    });
    object["rows"] = rows.collect();
    ["time", "seconds"].iter().for_each(|name| _ = object.as_object_mut().unwrap().remove(*name));
    object
}

#[test]
fn tables_are_those_of_samples() {
    needs_bpf();
    let work = words(300, 3, 2);
    let both = format!("{CALL},syscalls:sys_exit_getpgid");
    let filtered = format!("{CALL}/pid > 100 && pid < 200 || pid == 7/");
    let by_text = "task:task_rename";
    for args in [
        &["top", CALL][..],
        &["top", CALL, "--by", "pid"],
        &["top", CALL, "--by", "event,comm,pid"],
        &["top", &filtered, "--by", "pid"],
        &["top", &both, "--by", "event"],
        &["top", CALL, "--by", "comm", "--sum", "pid,__syscall_nr"],
        &["top", "syscalls:sys_exit_getpgid", "--by", "ret"],
        &["top", "syscalls:sys_exit_getpgid", "--by", "comm", "--sum", "ret"],
        &["hist", CALL, "--value", "pid", "--by", "comm"],
        &["hist", "syscalls:sys_exit_getpgid", "--value", "ret"],
        &["top", by_text, "--by", "oldcomm,newcomm"],
        &["top", &format!("{by_text}/newcomm ~ \"w*\"/"), "--by", "newcomm"],
    ] {
        let [kernel, samples] = ["always", "never"].map(|when| without_times(json(when, args, &work)));
        assert_eq!(kernel, samples, "{args:?}");
    }
}

const SCRIPT: &str = r#"
import perf_prof
from perf_prof import Count, Hist, Sum
called = Count("_comm", "pid")
summed = Sum("pid", by="_comm", where="pid >= 10")
spread = Hist("pid", by=("_comm", "_event"))
linear = Hist("pid", linear=(0, 100, 10))
syscalls__sys_enter_getpgid = called, summed, spread, linear
def __exit__():
    for table in called, summed, spread, linear:
        print(table.to_dict())
    counts = perf_prof.stats()["events"]["syscalls:sys_enter_getpgid"]
    print(counts.pop("where"))
    print(counts)
"#;

#[test]
fn aggregators_of_a_script_have_what_they_have_of_samples() {
    needs_bpf();
    let lines = |when: &str| {
        // In the order of time, samples have the right comms.
        let run =
            Run::script(SCRIPT).options(["--order", "--in-kernel", when]).call_event().exec(words(123, 2, 1)).run();
        assert_eq!(run.status, 0, "{run:?}");
        run.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let [kernel, samples] = ["always", "never"].map(lines);
    assert_eq!(kernel[..4], samples[..4]);
    assert_eq!([&kernel[4], &samples[4]], ["kernel", "perf-prof"]);
    assert_eq!([&kernel[5], &samples[5]], ["{'delivered': 492, 'lost': 0}"; 2]);
}

/// The table of an interval contains what was counted since the previous interval. Nothing may be counted twice or be
/// missing.
#[test]
fn the_tables_of_all_intervals_are_those_of_the_run() {
    needs_bpf();
    let script = "from perf_prof import Count\n\
                  all = Count()\n\
                  syscalls__sys_enter_getpgid = called = Count()\n\
                  intervals = 0\n\
                  def __interval__():\n    \
                      global intervals\n    \
                      intervals += called.total > 0\n    \
                      all.update(called)\n    \
                      called.clear()\n\
                  def __exit__():\n    \
                      all.update(called)\n    \
                      print(all.total, intervals > 1)\n";
    let options = ["--in-kernel", "always", "-i", "20"];
    let run = Run::script(script).options(options).call_event().exec(words(1_000_000, 1, 0)).run();
    assert_eq!((run.status, run.stdout.as_str()), (0, "2000000 True\n"), "{run:?}");
}

/// A program runs handlers in its own thread, and perf-prof's run has another thread.
#[test]
fn a_program_gets_the_tables_of_its_handlers() {
    needs_bpf();
    let script = r#"
import sys, perf_prof
from perf_prof import Count
def __sample__(event): pass
for when in "always", "never":
    called = Count("pid")
    handlers = {"syscalls__sys_enter_getpgid": called}
    print(perf_prof.run("syscalls:sys_enter_getpgid", handlers=handlers, in_kernel=when, exec=sys.argv[1:]), called.total, len(called))
try: perf_prof.run("syscalls:sys_enter_getpgid", handlers=__sample__, in_kernel="always", exec=["true"])
except perf_prof.Error as error: print(error)
"#;
    let run = Run::script(script).call_event().args(words(50, 1, 1)).workload("exit 0").run();
    let counted = "RunResult(delivered=150, lost=0, status=0) 150 50";
    let error = "in_kernel='always': syscalls:sys_enter_getpgid cannot be added up in the kernel, because a function gets \
                 events";
    assert_eq!((run.status, run.stdout), (0, format!("{counted}\n{counted}\n{error}\n")), "{}", run.stderr);
}
