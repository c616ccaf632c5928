//! Measures the CPU time that tracing adds to each system call, and to each switch between two tasks. The calls are
//! counted in the kernel, counted in perf-prof, recorded with strings, or traced by bpftrace. A generator that is
//! pinned to one CPU makes them, and the tracer is pinned to the other CPU.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use super::{
    cpu::{pinned, reap_ns},
    table::Table,
};

const CALLS: u64 = 1_000_000;

/// What the generator does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Getppid,
    /// getppid() below ten frames.
    DeepGetppid,
    /// openat() of a file that does not exist.
    Openat,
    /// A switch between two tasks that write to each other through pipes.
    Switch,
}

/// What traces the calls.
#[derive(Clone, Copy)]
enum Tracer {
    Nothing,
    /// perf-prof with these arguments.
    PerfProf(&'static [&'static str]),
    /// bpftrace with this program.
    Bpftrace(&'static str),
}

/// The CPU time for each call, in ns.
struct Cost {
    program: f64,
    tracer: f64,
}

const GETPPID: &str = "syscalls:sys_enter_getppid";
const KERNEL: &[&str] = &["top", GETPPID, "--by", "comm", "-a", "-v", "--in-kernel", "always"];
const RING: &[&str] = &["top", GETPPID, "--by", "comm", "-a", "-v", "--in-kernel", "never"];
const KERNEL_STACKS: &[&str] = &["top", GETPPID, "--by", "stack", "-a", "-v", "--in-kernel", "always"];
const RING_STACKS: &[&str] = &["top", GETPPID, "--by", "stack", "-a", "-v", "--in-kernel", "never"];
const BPFTRACE: &str = "tracepoint:syscalls:sys_enter_getppid { @[comm] = count(); }";
const OPENAT: &[&str] = &["trace", "-e", "syscalls:sys_enter_openat", "-a", "-v", "-o", "/dev/null"];
const STRINGS: &[&str] = &["trace", "-e", "syscalls:sys_enter_openat//str=filename/", "-a", "-v", "-o", "/dev/null"];

/// A script that receives only calls of a second or more. The generator makes none.
const SLOW: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/slow.py");
const SELECTOR: &str = "syscall/min=1s/";
const PAIRED: &[&str] = &["python", "-e", SELECTOR, "-v", "--in-kernel", "always", SLOW];
const NOT_PAIRED: &[&str] = &["python", "-e", SELECTOR, "-v", "--in-kernel", "never", SLOW];
const PAIRED_BY_BPFTRACE: &str = "tracepoint:raw_syscalls:sys_enter { @s[tid] = nsecs }
tracepoint:raw_syscalls:sys_exit /@s[tid]/ {
    if (nsecs - @s[tid] > 1000000000) { print(1) }
    delete(@s[tid])
}";

const SLOW_ROWS: [&str; 5] = [
    "traced getppid, slow calls found in perf-prof",
    "traced getppid, slow calls found in the kernel",
    "traced getppid, slow calls found by bpftrace",
    "perf-prof, finding slow calls in perf-prof",
    "perf-prof, finding slow calls in the kernel",
];

/// Measures calls when only slow ones are wanted, of which there are none.
fn slow_calls(table: &mut Table, calls: u64, has_bpftrace: bool) {
    std::fs::write(SLOW, "def syscall(call): print(call)\n").unwrap();
    let (mut ring, mut kernel, mut bpftrace, mut own, mut own_of_ring) = (vec![], vec![], vec![], vec![], vec![]);
    for _ in 0..table.effort.runs() {
        let nothing = run(Call::Getppid, Tracer::Nothing, calls).program;
        let cost = |tracer| run(Call::Getppid, tracer, calls);
        let (in_ring, in_kernel) = (cost(Tracer::PerfProf(NOT_PAIRED)), cost(Tracer::PerfProf(PAIRED)));
        ring.push(in_ring.program - nothing);
        own_of_ring.push(in_ring.tracer);
        kernel.push(in_kernel.program - nothing);
        own.push(in_kernel.tracer);
        if has_bpftrace {
            bpftrace.push(cost(Tracer::Bpftrace(PAIRED_BY_BPFTRACE)).program - nothing);
        }
    }
    table.row(
        SLOW_ROWS[0],
        &ring,
        "ns",
        "CPU time that the traced program pays more for each call; `syscall/min=1s/` with a function",
    );
    table.compared(SLOW_ROWS[1], &kernel, (SLOW_ROWS[0], &ring), "ns", "the same");
    match has_bpftrace {
        true => table.compared(SLOW_ROWS[2], &bpftrace, (SLOW_ROWS[1], &kernel), "ns", "a map of times by thread"),
        false => table.row(SLOW_ROWS[2], &[], "ns", "not measured: bpftrace is not installed"),
    }
    table.row(SLOW_ROWS[3], &own_of_ring, "ns", "CPU time of perf-prof for each call, without start-up");
    table.compared(SLOW_ROWS[4], &own, (SLOW_ROWS[3], &own_of_ring), "ns", "the same");
}

const OFFCPU: &[&str] = &["top", "offcpu", "--by", "comm", "-a", "-v", "--in-kernel", "always"];
const OFFCPU_RING: &[&str] = &["top", "offcpu", "--by", "comm", "-a", "-v", "--in-kernel", "never"];
const OFFCPU_BPFTRACE: &str = "tracepoint:sched:sched_switch { @s[args->prev_pid] = nsecs; if (@s[args->next_pid]) \
    { @[args->next_comm] = sum(nsecs - @s[args->next_pid]); delete(@s[args->next_pid]); } }";

/// Adds the rows about the time off CPU of two tasks that take turns.
pub fn switches(table: &mut Table) {
    const ROWS: [&str; 4] = [
        "traced switch, offcpu in perf-prof",
        "traced switch, offcpu in the kernel",
        "traced switch, offcpu by bpftrace",
        "perf-prof, offcpu in perf-prof",
    ];
    if !can_measure() {
        ROWS.iter().for_each(|name| table.row(name, &[], "ns", "skipped: needs root and two CPUs"));
        return;
    }
    let has_bpftrace = Command::new("bpftrace").arg("--version").output().is_ok();
    let count = table.effort.count(CALLS) / 4;
    let (mut ring, mut kernel, mut bpftrace, mut own) = (vec![], vec![], vec![], vec![]);
    for _ in 0..table.effort.runs() {
        let nothing = run(Call::Switch, Tracer::Nothing, count).program;
        let more = |tracer| run(Call::Switch, tracer, count);
        let in_ring = more(Tracer::PerfProf(OFFCPU_RING));
        ring.push(in_ring.program - nothing);
        own.push(in_ring.tracer);
        kernel.push(more(Tracer::PerfProf(OFFCPU)).program - nothing);
        if has_bpftrace {
            bpftrace.push(more(Tracer::Bpftrace(OFFCPU_BPFTRACE)).program - nothing);
        }
    }
    let added = "CPU time that two tasks pay more for each switch between them, by name of the task";
    table.row(ROWS[0], &ring, "ns", added);
    table.compared(ROWS[1], &kernel, (ROWS[0], &ring), "ns", "the same");
    match has_bpftrace {
        true => table.compared(ROWS[2], &bpftrace, (ROWS[1], &kernel), "ns", "the same"),
        false => table.row(ROWS[2], &[], "ns", "not measured: bpftrace is not installed"),
    }
    table.row(ROWS[3], &own, "ns", "CPU time of perf-prof for each switch, without start-up");
}

/// Adds the rows about short runs. Loading BPF programs makes their start and end later.
pub fn starts(table: &mut Table) {
    const STARTS: [(&str, [&str; 2]); 3] = [
        (GETPPID, ["run of `true`, getppid in perf-prof", "run of `true`, getppid in the kernel"]),
        ("offcpu", ["run of `true`, offcpu in perf-prof", "run of `true`, offcpu in the kernel"]),
        ("runqueue", ["run of `true`, runqueue in perf-prof", "run of `true`, runqueue in the kernel"]),
    ];
    for (event, names) in STARTS {
        if !can_measure() {
            names.iter().for_each(|name| table.row(name, &[], "ms", "skipped: needs root and two CPUs"));
            continue;
        }
        let (mut ring, mut kernel) = (vec![], vec![]);
        for _ in 0..3 * table.effort.runs() {
            ring.push(whole_run(event, "never"));
            kernel.push(whole_run(event, "always"));
        }
        table.row(names[0], &ring, "ms", "from its start to its end, on a wall clock; `top EVENT --by comm -- true`");
        table.compared(names[1], &kernel, (names[0], &ring), "ms", "the same");
    }
}

/// Returns how long a run of `top` on `true` takes, in ms.
fn whole_run(event: &str, in_kernel: &str) -> f64 {
    let begun = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
    let done = command.args(["top", event, "--by", "comm", "--in-kernel", in_kernel, "--", "true"]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    begun.elapsed().as_secs_f64() * 1e3
}

/// Returns whether BPF programs can be measured on this machine.
fn can_measure() -> bool {
    // SAFETY: geteuid can always be called.
    let root = unsafe { libc::geteuid() } == 0;
    root && std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1)
}

pub fn rows(table: &mut Table) {
    const ROWS: [&str; 9] = [
        "traced getppid, counted in perf-prof",
        "traced getppid, counted in the kernel",
        "traced getppid, counted by bpftrace",
        "perf-prof, counting in the kernel",
        "perf-prof, counting in perf-prof",
        "traced openat, through the ring",
        "traced openat, with its file name",
        "traced getppid, by call chain in perf-prof",
        "traced getppid, by call chain in the kernel",
    ];
    if !can_measure() {
        let all = ROWS.iter().chain(&SLOW_ROWS);
        all.for_each(|name| table.row(name, &[], "ns", "skipped: needs root and two CPUs"));
        return;
    }
    let has_bpftrace = Command::new("bpftrace").arg("--version").output().is_ok();
    let calls = table.effort.count(CALLS);
    let (mut ring, mut kernel, mut bpftrace, mut own, mut own_of_ring) = (vec![], vec![], vec![], vec![], vec![]);
    let (mut plain, mut strings, mut ring_stacks, mut kernel_stacks) = (vec![], vec![], vec![], vec![]);
    for _ in 0..table.effort.runs() {
        let more = |call, tracer| {
            let nothing = run(call, Tracer::Nothing, calls).program;
            let Cost { program, tracer } = run(call, tracer, calls);
            Cost { program: program - nothing, tracer }
        };
        let (in_ring, in_kernel) =
            (more(Call::Getppid, Tracer::PerfProf(RING)), more(Call::Getppid, Tracer::PerfProf(KERNEL)));
        ring.push(in_ring.program);
        own_of_ring.push(in_ring.tracer);
        kernel.push(in_kernel.program);
        own.push(in_kernel.tracer);
        if has_bpftrace {
            bpftrace.push(more(Call::Getppid, Tracer::Bpftrace(BPFTRACE)).program);
        }
        plain.push(more(Call::Openat, Tracer::PerfProf(OPENAT)).program);
        strings.push(more(Call::Openat, Tracer::PerfProf(STRINGS)).program);
        ring_stacks.push(more(Call::DeepGetppid, Tracer::PerfProf(RING_STACKS)).program);
        kernel_stacks.push(more(Call::DeepGetppid, Tracer::PerfProf(KERNEL_STACKS)).program);
    }
    let added = "CPU time that the traced program pays more for each call, by name of its task";
    table.row(ROWS[0], &ring, "ns", added);
    table.compared(ROWS[1], &kernel, (ROWS[0], &ring), "ns", "the same");
    match has_bpftrace {
        true => table.compared(ROWS[2], &bpftrace, (ROWS[1], &kernel), "ns", "the same"),
        false => table.row(ROWS[2], &[], "ns", "not measured: bpftrace is not installed"),
    }
    table.row(ROWS[4], &own_of_ring, "ns", "CPU time of perf-prof for each call, without start-up");
    table.compared(ROWS[3], &own, (ROWS[4], &own_of_ring), "ns", "the same");
    table.row(ROWS[5], &plain, "ns", "CPU time that the traced program pays more for each call");
    table.compared(ROWS[6], &strings, (ROWS[5], &plain), "ns", "the same; `str=filename`");
    table.row(
        ROWS[7],
        &ring_stacks,
        "ns",
        "CPU time that the traced program pays more for each call, below ten frames",
    );
    table.compared(ROWS[8], &kernel_stacks, (ROWS[7], &ring_stacks), "ns", "the same");
    slow_calls(table, calls, has_bpftrace);
}

/// Returns the cost of a call, without the cost of starting both programs.
fn run(call: Call, tracer: Tracer, calls: u64) -> Cost {
    let (start, whole) = (once(call, tracer, 0), once(call, tracer, calls));
    let each = |whole: u64, start: u64| whole.saturating_sub(start) as f64 / calls as f64;
    Cost { program: each(whole.0, start.0), tracer: each(whole.1, start.1) }
}

/// Traces a generator. Returns the CPU times of the generator and of the tracer, in ns.
fn once(call: Call, tracer: Tracer, calls: u64) -> (u64, u64) {
    let mut generator = Command::new(std::env::current_exe().unwrap());
    let operation = match call {
        Call::Getppid => "--generate",
        Call::DeepGetppid => "--generate-deep",
        Call::Openat => "--generate-opens",
        Call::Switch => "--generate-switches",
    };
    generator.args([operation, &calls.to_string()]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut generator = pinned(&mut generator, 1).spawn().unwrap();
    let tracing = start(tracer);
    drop(generator.stdin.take());
    let program = reap_ns(generator);
    let own = tracing.map_or(0, |(child, _output)| interrupt(child));
    (program, own)
}

/// Interrupts a tracer, and returns its CPU time in ns. bpftrace can miss a signal that comes early on a busy machine.
fn interrupt(child: Child) -> u64 {
    let pid = child.id() as i32;
    let (end, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            loop {
                // SAFETY: the child has not been waited for, so the id is still its own.
                unsafe { libc::kill(pid, libc::SIGINT) };
                if ended.recv_timeout(Duration::from_secs(10)) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        let own = reap_ns(child);
        drop(end);
        own
    })
}

/// Starts a tracer, and waits until it traces. Its output is a pipe that has to stay open.
fn start(tracer: Tracer) -> Option<(Child, Option<ChildStdout>)> {
    let mut command = match tracer {
        Tracer::Nothing => return None,
        Tracer::PerfProf(arguments) => {
            let mut command = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
            command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
            command
        }
        Tracer::Bpftrace(program) => {
            let mut command = Command::new("bpftrace");
            command.args(["-e", program]).stdout(Stdio::piped()).stderr(Stdio::null());
            command
        }
    };
    let mut child = pinned(&mut command, 0).spawn().unwrap();
    // Both tracers print a line when their events are open, and enable the events a moment later.
    let line = &mut String::new();
    match (child.stderr.as_mut(), child.stdout.as_mut()) {
        (Some(stderr), _) => BufReader::with_capacity(1, stderr).read_line(line).unwrap(),
        (None, stdout) => BufReader::with_capacity(1, stdout.unwrap()).read_line(line).unwrap(),
    };
    std::thread::sleep(Duration::from_millis(300));
    if let Some(mut stderr) = child.stderr.take() {
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    }
    let output = child.stdout.take();
    Some((child, output))
}

/// Waits until stdin is closed, then switches this many times between two tasks, which are on the same CPU.
pub fn generate_switches(switches: u64) {
    let _ = std::io::stdin().read(&mut [0]);
    let (mut there, mut back) = ([0; 2], [0; 2]);
    let mut byte = 0u8;
    let byte = (&raw mut byte).cast();
    // SAFETY: pipes and byte live across the calls; the child of the fork calls nothing else.
    unsafe {
        assert!(libc::pipe(there.as_mut_ptr()) == 0 && libc::pipe(back.as_mut_ptr()) == 0);
        let child = libc::fork();
        let (read, write) = if child == 0 { (there[0], back[1]) } else { (back[0], there[1]) };
        for _ in 0..switches / 2 {
            if child == 0 {
                libc::read(read, byte, 1);
                libc::write(write, byte.cast_const(), 1);
            } else {
                libc::write(write, byte.cast_const(), 1);
                libc::read(read, byte, 1);
            }
        }
        if child == 0 {
            libc::_exit(0);
        }
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}

/// Waits until stdin is closed, then opens a file that does not exist this many times.
pub fn generate_opens(calls: u64) {
    let _ = std::io::stdin().read(&mut [0]);
    for _ in 0..calls {
        // SAFETY: the path ends with a NUL and lives across the call.
        unsafe { libc::open(c"/no/such/file".as_ptr(), libc::O_RDONLY) };
    }
    let _ = std::io::stdout().flush();
}

/// Waits until stdin is closed, then makes this many calls of getppid() below ten frames. The frame pointers are set by
/// hand, because the compiler may not keep them.
#[cfg(target_arch = "x86_64")]
pub fn generate_deep(calls: u64) {
    let _ = std::io::stdin().read(&mut [0]);
    // Each frame contains the address of the next frame, and a return address.
    let mut frames = [[0u64; 2]; 9];
    for at in 0..frames.len() {
        let next = frames.get(at + 1).map_or(0, |next| next.as_ptr() as u64);
        frames[at] = [next, generate_opens as fn(u64) as usize as u64 + at as u64];
    }
    for _ in 0..calls {
        // SAFETY: the system call takes no arguments and changes these registers only. The frame pointer is put back, and
        // the kernel only reads the frames.
        unsafe {
            std::arch::asm!(
                "xchg rbp, {frames}",
                "syscall",
                "xchg rbp, {frames}",
                frames = inout(reg) frames.as_ptr() => _,
                inout("rax") libc::SYS_getppid => _,
                out("rcx") _,
                out("r11") _,
            );
        }
    }
}

/// On other architectures, the chain contains only the frames that the compiler keeps.
#[cfg(not(target_arch = "x86_64"))]
pub fn generate_deep(calls: u64) {
    super::live::generate(calls);
}
