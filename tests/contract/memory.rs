//! The memory that waiting events may take if a cgroup or ulimit allows less than the machine has, and the room for
//! large events.

use std::process::{Command, Stdio};

use crate::harness::{
    cgroup::Cgroup,
    machine::{Need, needs},
    run::{PATIENCE, with_patience},
    script::{Outcome, Run, finish},
};

/// A script that takes no events until all calls have been made. The calls need more than 200 MB.
const SLOW: &str = r#"
import sys, time
def state(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"
def syscalls__sys_enter_getpgid(event):
    while state(event._pid) not in "ZX":
        time.sleep(0.01)
    sys.exit(0)
def __exit__():
    print("exit")
"#;

/// Executes shell commands, and then runs the script.
fn run_after(commands: &str) -> Outcome {
    finish_after(commands, &Run::script(SLOW).call_event().workload("calls 3000000"))
}

/// Executes shell commands, and then the run.
fn finish_after(commands: &str, run: &Run) -> Outcome {
    let command = run.command();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{commands} && exec \"$@\""), "sh"]).arg(command.get_program());
    shell.args(command.get_args()).current_dir(run.dir.path()).stdin(Stdio::null());
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    with_patience(&mut shell, PATIENCE).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(shell.spawn().unwrap(), run.dir.path())
}

/// The kernel kills a process that takes more memory than its cgroup allows, and then `__exit__` is not called.
#[test]
fn waiting_events_fit_into_the_memory_of_the_cgroup() {
    needs([Need::Tracefs]);
    let cgroup = Cgroup::with_memory(100 << 20);
    let outcome = run_after(&format!("echo $$ > {}", cgroup.procs()));
    assert_eq!((outcome.status, outcome.stdout.as_str()), (0, "exit\n"), "{}", outcome.stderr);
}

/// No span ends, because no result equals the number of its call. With copies of the stack, all open spans would need
/// more than 240 MB.
#[test]
fn open_spans_fit_into_the_memory_of_the_cgroup() {
    needs([Need::Tracefs]);
    let cgroup = Cgroup::with_memory(200 << 20);
    let script = "
import perf_prof
def span__x(event):
    pass
def __exit__():
    row = perf_prof.stats()['events']['span:x']
    print(row['opened'] == row['ended'] + row['open'] + row['dropped'], row['dropped'] > 1000)
";
    let span = "span:x=syscalls:sys_enter_getpgid..syscalls:sys_exit_getpgid//key=pid:ret/stack/";
    // Pauses between the calls keep events from being lost.
    let run = Run::script(script).event(span).options(["--call-graph", "dwarf", "--order"]);
    let run = run.workload(&"calls 200 sleep-ms 15 ".repeat(150)).env("DEEP", "x".repeat(16 << 10));
    let outcome = finish_after(&format!("echo $$ > {}", cgroup.procs()), &run);
    assert_eq!((outcome.status, outcome.stdout.as_str()), (0, "True True\n"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("more than a quarter of --buffer"), "{}", outcome.stderr);
}

/// If an allocation fails, the process ends.
#[test]
fn waiting_events_fit_into_the_address_space_that_ulimit_allows() {
    needs([Need::Tracefs]);
    let outcome = run_after("ulimit -v 400000");
    assert_eq!((outcome.status, outcome.stdout.as_str()), (0, "exit\n"), "{}", outcome.stderr);
}

/// An event with a copy of the stack takes 9 KiB. A program that samples its own stack at full speed fills a ring
/// faster than the reader can empty it.
#[test]
fn a_burst_of_copied_stacks_fits_into_the_rings() {
    needs([Need::Tracefs]);
    let script = "
import perf_prof
def syscalls__sys_enter_getpgid(event):
    pass
def __exit__():
    stats = perf_prof.stats()
    print(stats['delivered'], stats['lost'])
";
    // The variable makes the stack deep enough, because the environment is at the start of the stack.
    let run = Run::script(script).call_event().options(["--call-graph", "dwarf"]).workload("calls 1000");
    let outcome = run.env("DEEP", "x".repeat(16 << 10)).run();
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let numbers: Vec<u64> = outcome.stdout.split_whitespace().map(|number| number.parse().unwrap()).collect();
    assert!(numbers[0] + numbers[1] == 1000 && numbers[1] <= 10, "{outcome:?}");
}
