//! Compares the output of `event.print()`, for events from perf events, with the text that the kernel printed for the
//! same events.
//!
//! For each event, perf and ftrace make separate records. So records are matched by their text: each text of perf-prof
//! must be among the kernel's texts, at least as often as perf-prof printed it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    io::{BufRead, BufReader, Read, Write},
    process::{Command, Stdio},
};

use super::{instance::Instance, workload};
use crate::harness::{
    machine::{Need, skip},
    probe_lock,
    run::tested_program,
};

const NAME: &str = "print_fmt_oracle::through_perf::event_print_is_the_kernels_own_text";
/// The environment variable that makes the test's executable run as the workload.
const ROLE: &str = "PERF_PROF_TEST_WORKLOAD";

const SCRIPT: &str = "
def __init__():
    print('ready')

def __sample__(event):
    event.print(timestamp=False, callchain=False)

def __exit__():
    import perf_prof
    print('lost', perf_prof.stats()['lost'])
";

/// The results of the comparison for one kind of event.
#[derive(Default)]
struct Kind {
    exact: usize,
    differ: Vec<String>,
}

#[test]
fn event_print_is_the_kernels_own_text() {
    if std::env::var_os(ROLE).is_some() {
        println!("ready");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return workload::mix();
    }
    probe_lock::alone();
    let instance = Instance::new("perf_prof_print").unwrap_or_else(|reason| skip(Need::Tracefs, reason));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture", "--test-threads=1"])
        .env(ROLE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    await_ready(&mut said);

    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("print.py");
    fs::write(&script, SCRIPT).unwrap();
    let mut ours = String::new();
    let process = child.id();
    let record = || {
        let mut tracer = Command::new(tested_program())
            .args(["python", "-q", "-m", "32M", "-e", &events(), "-p", &process.to_string()])
            .arg(&script)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut printed = BufReader::new(tracer.stdout.take().unwrap());
        await_ready(&mut printed);
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let workload = std::thread::spawn(move || {
            said.lines().for_each(drop);
            child.wait().unwrap()
        });
        let mut bytes = Vec::new();
        printed.read_to_end(&mut bytes).unwrap();
        ours = String::from_utf8_lossy(&bytes).into_owned();
        assert!(tracer.wait().unwrap().success());
        assert!(workload.join().unwrap().success());
    };
    instance.record(process, record).unwrap();
    let mut theirs: HashMap<String, usize> = HashMap::new();
    for cpu in instance.cpus() {
        for line in instance.text(cpu).unwrap().lines() {
            *theirs.entry(line.to_owned()).or_default() += 1;
        }
    }
    compare(&ours, theirs);
}

fn compare(ours: &str, mut theirs: HashMap<String, usize>) {
    let mut kinds: BTreeMap<&str, Kind> = BTreeMap::new();
    let mut hidden_kinds = HashSet::new();
    for line in ours.lines() {
        if let Some(lost) = line.strip_prefix("lost ") {
            assert_eq!(lost, "0", "events were lost");
            continue;
        }
        // `comm pid flags [cpu] time: sys:name: text`
        let event = line.split_once("] ").and_then(|(_, rest)| rest.split_once(": "));
        let (name, text) = event.and_then(|(_, rest)| rest.split_once(": ")).unwrap_or_else(|| panic!("{line}"));
        let (system, short) = name.split_once(':').unwrap();
        let as_kernel = if system == "syscalls" { text.to_owned() } else { format!("{short}: {text}") };
        if UNSET.contains(&name) {
            continue;
        }
        let kind = kinds.entry(name).or_default();
        let hidden: Vec<&str> = as_kernel.split(' ').filter_map(|word| word.strip_suffix('?')).collect();
        if !hidden.is_empty() {
            hide(short, &hidden, &mut theirs, &mut hidden_kinds);
        }
        match theirs.get_mut(&as_kernel) {
            Some(count) if *count > 0 => {
                *count -= 1;
                kind.exact += 1;
            }
            _ => kind.differ.push(as_kernel),
        }
    }
    let exact: usize = kinds.values().map(|kind| kind.exact).sum();
    let compared = kinds.values().filter(|kind| kind.exact > 0).count();
    println!("{exact} printed events of {compared} kinds are exact");
    for (name, kind) in &kinds {
        if let Some(first) = kind.differ.first() {
            println!(
                "{name}: {} of {} differ, the first is {first:?}",
                kind.differ.len(),
                kind.exact + kind.differ.len()
            );
            let begin: String = first.chars().take(30).collect();
            let near = theirs.iter().find(|(text, count)| **count > 0 && text.starts_with(&begin));
            println!("    the kernel has {near:?}");
        }
    }
    assert!(compared >= 150, "only {compared} kinds of events happened");
    let differ: usize = kinds.values().map(|kind| kind.differ.len()).sum();
    assert_eq!(differ, 0, "see the differences above");
}

/// Events whose tracepoint leaves some bytes of the record unset. perf and ftrace then show different old bytes.
const UNSET: [&str; 4] = ["fib:fib_table_lookup", "fib6:fib6_table_lookup", "neigh:neigh_create", "neigh:neigh_update"];

/// Replaces the words that only the kernel can compute (`page=?`) by `?` in the kernel's texts too, once for each kind
/// of event.
fn hide(event: &str, keys: &[&str], theirs: &mut HashMap<String, usize>, done: &mut HashSet<String>) {
    if !done.insert(event.to_owned()) {
        return;
    }
    let of_event = format!("{event}: ");
    let texts: Vec<String> = theirs.keys().filter(|text| text.starts_with(&of_event)).cloned().collect();
    for text in texts {
        let word = |word: &str| match keys.iter().find(|key| word.starts_with(**key)) {
            Some(key) => format!("{key}?"),
            None => word.to_owned(),
        };
        let hidden = text.split(' ').map(word).collect::<Vec<_>>().join(" ");
        let count = theirs.remove(&text).unwrap_or(0);
        *theirs.entry(hidden).or_default() += count;
    }
}

/// Only events that the workload causes are recorded. Each event is opened on each CPU and inherited by each child, and
/// the kernel needs 38 ms to close an event.
const EVENTS: &str = "alarmtimer:*,block:*,cgroup:*,exceptions:*,ext4:*,fib:*,filelock:*,fs_dax:*,huge_memory:*,initcall:*,\
    iomap:*,ipi:*,irq:*,jbd2:*,kmem:*,maple_tree:*,mmap:*,mmap_lock:*,napi:*,neigh:*,net:*,notifier:*,oom:*,pagemap:*,\
    percpu:*,printk:*,qdisc:*,raw_syscalls:*,rcu:*,sched:*,signal:*,skb:*,sock:*,task:*,tcp:*,timer:*,tlb:*,udp:*,vmscan:*,\
    workqueue:*,writeback:*,syscalls:sys_*_openat,syscalls:sys_*_mmap,syscalls:sys_*_read,syscalls:sys_*_write,\
    syscalls:sys_*_close,syscalls:sys_*_futex,syscalls:sys_*_clone*,syscalls:sys_*_execve,syscalls:sys_*_epoll_*,\
    syscalls:sys_*_socket,syscalls:sys_*_sendto,syscalls:sys_*_rt_sig*,syscalls:sys_*_timer*,syscalls:sys_*_fcntl";

/// Returns the selectors of [`EVENTS`] that match events of this kernel.
fn events() -> String {
    let exists = |selector: &&str| {
        let path = format!("/sys/kernel/tracing/events/{}/format", selector.replace(':', "/"));
        glob::glob(&path).unwrap().next().is_some()
    };
    EVENTS.split(',').filter(exists).collect::<Vec<_>>().join(",")
}

fn await_ready(lines: &mut impl BufRead) {
    let mut line = String::new();
    while !line.contains("ready") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the process ended before it was ready");
    }
}
