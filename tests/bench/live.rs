//! Measures the executable on live events. A generator that is pinned to one CPU makes system calls; perf-prof is
//! pinned to the other CPU.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use super::{
    cpu::{pinned, reap_ns},
    floor, python,
    table::Table,
};

const CALLS: u64 = 2_000_000;

pub fn rows(table: &mut Table) {
    // SAFETY: geteuid can always be called.
    let root = unsafe { libc::geteuid() } == 0;
    if !root || std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        for name in ["live h1", "live h3"] {
            table.row(name, &[], "ns", "skipped: needs root and two CPUs");
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let calls = table.effort.count(CALLS);
    for (name, fields) in [("h1", ""), ("h3", "    event.id\n    event.common_pid\n")] {
        let script = dir.path().join(format!("{name}.py"));
        fs::write(&script, counting(fields)).unwrap();
        let bare = python::bare(python::body(name));
        let (mut floor, mut live, mut lost) = (Vec::new(), Vec::new(), 0);
        for _ in 0..table.effort.runs() {
            floor.push(floor::calls(&bare, calls));
            let (start, _, _) = run(&script, 0);
            let (whole, seen, missed) = run(&script, calls);
            lost += missed;
            live.push(whole.saturating_sub(start) as f64 / seen as f64);
        }
        let base = format!("floor {name}");
        let note = format!("user + system CPU time of the whole process, without start-up; {lost} lost");
        table.compared(&format!("live {name}"), &live, (&base, &floor), "ns", &note);
    }
}

/// Returns a script that counts events. `fields` are lines of its handler that read fields.
pub fn counting(fields: &str) -> String {
    let handler = format!("n = 0\n\ndef raw_syscalls__sys_enter(event):\n    global n\n    n += 1\n{fields}");
    format!("{handler}\n\ndef __exit__():\n    import perf_prof\n    print(n, perf_prof.stats()['lost'])\n")
}

/// Traces a generator that makes this many calls with this script. Returns the CPU time of perf-prof in ns, and the
/// numbers of delivered and lost samples.
pub fn run(script: &Path, calls: u64) -> (u64, u64, u64) {
    run_tracer(calls, |filter| {
        let mut tracer = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
        tracer.args(["python", "-e", filter]).arg(script);
        tracer
    })
}

/// Traces a generator that makes this many calls, with the command that `tracer` returns for a selector. The command
/// writes a line to stderr when the events are open. It ends when its stdin is closed, or at SIGINT.
pub fn run_tracer(calls: u64, tracer: impl Fn(&str) -> Command) -> (u64, u64, u64) {
    let mut generator = Command::new(std::env::current_exe().unwrap());
    generator.args(["--generate", &calls.to_string()]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut generator = pinned(&mut generator, 1).spawn().unwrap();
    let filter = format!("raw_syscalls:sys_enter/common_pid=={}/", generator.id());
    let mut tracer = tracer(&filter);
    let mut tracer = pinned(tracer.stdout(Stdio::piped()).stderr(Stdio::piped()), 0).spawn().unwrap();
    // perf-prof prints which module it loaded when the events are open, and enables them a moment later.
    let mut said = std::io::BufReader::new(tracer.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut said, &mut String::new()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    drop(generator.stdin.take());
    assert!(generator.wait().unwrap().success());
    match tracer.stdin.take() {
        Some(stdin) => drop(stdin),
        // SAFETY: the child has not been waited for, so the id is still its own.
        None => unsafe {
            libc::kill(tracer.id() as i32, libc::SIGINT);
        },
    }
    let mut text = String::new();
    std::io::Read::read_to_string(&mut tracer.stdout.take().unwrap(), &mut text).unwrap();
    let cpu = reap_ns(tracer);
    let mut numbers = text.split_whitespace().map(|number| number.parse::<u64>().unwrap());
    (cpu, numbers.next().unwrap(), numbers.next().unwrap())
}

/// Waits until stdin is closed, then makes this many system calls.
pub fn generate(calls: u64) {
    let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
    for _ in 0..calls {
        // The wrapper in the C library is not used, because it may cache the result.
        // SAFETY: the system call takes no arguments.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
}
