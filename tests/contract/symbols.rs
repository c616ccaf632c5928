//! Names of user frames in programs that the tests compile, and names of BPF programs.

use std::process::Command;

use expect_test::expect;

use crate::harness::{
    machine::{Need, needs, skip},
    script::{CALL, Run, prints},
};

const PROGRAM: &str = r#"
#include <sys/syscall.h>
#include <unistd.h>
// The C library's own wrapper has no frame, so that its caller would be missing.
static inline long getpgid_here(void) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_getpgid), "D"(0) : "rcx", "r11", "memory");
    return result;
}
static inline __attribute__((always_inline)) long inlined(int x) { return getpgid_here() + x; }
__attribute__((noinline)) long leaf(int x) {
    // Who asks for his frame has one.
    __asm__ volatile("" : : "r"(__builtin_frame_address(0)));
    return inlined(x) + 1;
}
__attribute__((noinline)) long middle(int x) { return leaf(x) + 1; }
int main(void) { long sum = 0; for (int i = 0; i < 50; i++) sum += middle(i); return sum == 0; }
"#;

/// Compiles the program in the run's folder.
fn compile(run: &Run, options: &[&str]) -> std::path::PathBuf {
    let (source, program) = (run.dir.path().join("p.c"), run.dir.path().join("p"));
    std::fs::write(&source, PROGRAM).unwrap();
    let options = ["-O1", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"].iter().chain(options);
    match Command::new("cc").args(options).arg("-o").args([&program, &source]).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => skip(Need::Compilers, format!("cc: {error}")),
    }
    program
}

fn chains(options: &[&str], compiler: &[&str], frame: &str, expected: expect_test::Expect) {
    needs([Need::Tracefs]);
    // The script reads the call chains after the program has exited.
    let text = format!(
        "
import perf_prof
chains = []
kept = []

def __sample__(event):
    kept.append(event)

def __exit__():
    for event in kept:
        frames = event._callchain
        names = [f['symbol'] for f in frames]
        chains.append(tuple({frame} for f in frames[:names.index('main') + 1]))
    print(len(chains), *set(chains))
"
    );
    let run = Run::script(&text).event(format!("{CALL}//stack/"));
    let program = compile(&run, compiler);
    let run = run.options(["--user-callchain", "--no-kernel-callchain"]).options(options.iter().copied());
    prints(run.exec([program]), expected);
}

#[test]
fn functions_of_a_program_that_has_exited() {
    chains(
        &[],
        &[],
        "f['symbol']",
        expect![[r#"
            50 ('leaf', 'middle', 'main')
        "#]],
    );
}

#[test]
fn functions_of_a_program_that_is_not_position_independent() {
    chains(
        &[],
        &["-no-pie"],
        "(f['symbol'], f['kernel'], f['dso'].rpartition('/')[2])",
        expect![[r#"
            50 (('leaf', False, 'p'), ('middle', False, 'p'), ('main', False, 'p'))
        "#]],
    );
}

#[test]
fn inlined_functions_and_lines() {
    chains(
        &["--inline", "--srcline"],
        &[],
        "(f['symbol'], f.get('inlined', False), f['srcline'].rpartition('/')[2])",
        expect![[r#"
            50 (('inlined', True, 'p.c:10'), ('leaf', False, 'p.c:14'), ('middle', False, 'p.c:16'), ('main', False, 'p.c:17'))
        "#]],
    );
}

#[test]
fn the_line_of_a_frame_without_an_option() {
    chains(
        &[],
        &[],
        "(f['symbol'], perf_prof.srcline(f).rpartition('/')[2])",
        expect![[r#"
            50 (('leaf', 'p.c:7'), ('middle', 'p.c:16'), ('main', 'p.c:17'))
        "#]],
    );
}

/// The script reads the kernel's symbols before the BPF program is loaded.
#[test]
fn a_bpf_program_that_is_loaded_later_has_its_name_at_once() {
    needs([Need::Tracefs, Need::Bpf]);
    let text = include_str!("later_bpf_program.py");
    prints(
        Run::script(text).event("bpf_trace:bpf_trace_printk").options(["-g", "-i", "100", "--include-self"]),
        expect![[r#"
            True
            ['later_prog']
        "#]],
    );
}

#[test]
fn the_build_id_of_frames_without_names() {
    needs([Need::Tracefs]);
    let text = "
import perf_prof
kept = []
def __sample__(event):
    kept.append(event)
def __exit__():
    frames = [f for event in kept for f in event._callchain if f['dso'].endswith('/p')]
    print(len(frames) >= 150, {(f['symbol'], perf_prof.build_id(f)) for f in frames})
    print(perf_prof.build_id({'addr': frames[0]['addr'], 'kernel': True}))
";
    let run = Run::script(text).event(format!("{CALL}//stack/"));
    let id = "-Wl,--build-id=0x0123456789abcdef0123456789abcdef01234567";
    let program = compile(&run, &["-s", id]);
    prints(
        run.options(["--user-callchain", "--no-kernel-callchain"]).exec([program]),
        expect![[r#"
            True {('Unknown', '0123456789abcdef0123456789abcdef01234567')}
            None
        "#]],
    );
}

/// A script that names the frames of page faults. It prints by how many MiB the memory of perf-prof grew, and the
/// numbers of processes, of frames with names, and of all frames.
const MEMORY: &str = "
processes = 1
named = frames = 0
def resident():
    return next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmRSS')) >> 10
def __init__():
    global before
    before = resident()
# By their births, as a number may be used again.
def task__task_newtask(event):
    global processes
    processes += 1
def __sample__(event):
    global named, frames
    frames += len(event._callchain)
    named += sum(frame['symbol'] != 'Unknown' for frame in event._callchain)
def __exit__():
    print(resident() - before, processes, named, frames)
";

#[test]
fn a_small_symbol_cache_bounds_memory() {
    needs([Need::Tracefs]);
    let grown = |cache: &str| {
        let run = Run::script(MEMORY).event("minor-faults,task:task_newtask").options([
            "--order",
            "-g",
            "--symbol-cache",
            cache,
        ]);
        let run = run.exec(["sh", "-c", "i=0; while [ $i -lt 300 ]; do env true; i=$((i+1)); done"]);
        let outcome = run.run();
        assert_eq!((outcome.status, outcome.complaints().as_str()), (0, ""), "stdout: {}", outcome.stdout);
        let numbers: Vec<u64> = outcome.stdout.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let [grown, processes, named, frames] = numbers[..] else { panic!("{}", outcome.stdout) };
        assert!(processes == 301 && frames > 10 * processes && 10 * named > frames, "{}", outcome.stdout);
        grown
    };
    let (small, large) = (grown("2M"), grown("256M"));
    assert!(small < 16 && small < large, "memory grew by {small} MiB, and with a large cache by {large} MiB");
}

/// Opens events that request build ids, one per CPU, as another tracer does.
fn asking_for_build_ids() -> Vec<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;

    use perf_event_open_sys::{bindings, perf_event_open};
    let mut attr = bindings::perf_event_attr {
        type_: bindings::PERF_TYPE_SOFTWARE,
        size: size_of::<bindings::perf_event_attr>() as u32,
        config: bindings::PERF_COUNT_SW_DUMMY.into(),
        ..Default::default()
    };
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_build_id(1);
    let cpus = 0..std::thread::available_parallelism().unwrap().get() as i32;
    // SAFETY: the attr lives across the calls. Each call returns a new descriptor, or -1.
    let opened = cpus.map(|cpu| unsafe { perf_event_open(&mut attr, -1, cpu, -1, 0) });
    // SAFETY: as above.
    opened.filter(|&fd| fd >= 0).map(|fd| unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) }).collect()
}

/// If one tracer requests build ids, the kernel also marks records for other tracers as if they contained build ids.
/// Mappings and names must not be missing for that reason.
#[test]
fn names_while_another_tracer_asks_for_build_ids() {
    let others = asking_for_build_ids();
    if others.is_empty() {
        skip(Need::BuildIds, "this kernel gives none, or not to us");
    }
    chains(
        &[],
        &["-Wl,--build-id"],
        "f['symbol']",
        expect![[r#"
            50 ('leaf', 'middle', 'main')
        "#]],
    );
}

/// The line of a clock sample shows the function and the file of the running program, also without call chains.
#[test]
fn instructions_after_an_exec_are_named_from_the_new_program() {
    needs([Need::Tracefs]);
    let script = "
def cpu_clock_u(event):
    event.print()
";
    let run = Run::script(script).event("cpu-clock:u//period=1000000/");
    let work =
        "volatile long n; __attribute__((noinline)) void NAME(void) { for (long i = 0; i < 60000000; i++) n += i; }";
    let compile = |name: &str, function: &str, then: &str| {
        let (source, program) = (run.dir.path().join(format!("{name}.c")), run.dir.path().join(name));
        let text = format!(
            "#include <unistd.h>\n{}\nint main(int c, char **v) {{ {function}(); {then} return 0; }}",
            work.replace("NAME", function)
        );
        std::fs::write(&source, text).unwrap();
        let done = Command::new("cc").args(["-O1", "-g", "-o"]).args([&program, &source]).status();
        done.is_ok_and(|status| status.success()).then_some(program)
    };
    let (Some(first), Some(second)) = (compile("pa", "alpha", "execv(v[1], v + 1);"), compile("pb", "beta", "")) else {
        skip(Need::Compilers, "no cc");
    };
    let outcome = run.exec([first, second]).run();
    assert_eq!((outcome.status, outcome.complaints().as_str()), (0, ""), "{}", outcome.stderr);
    let count = |function: &str, program: &str| {
        let of = |line: &&str| line.contains(&format!(" {function}+")) && line.contains(&format!("/{program})"));
        outcome.stdout.lines().filter(of).count()
    };
    let right = (count("alpha", "pa"), count("beta", "pb"));
    assert!(
        right.0 > 5 && right.1 > 5 && count("alpha", "pb") + count("beta", "pa") == 0,
        "{right:?} {}",
        outcome.stdout
    );
}
