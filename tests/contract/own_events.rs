//! Events of perf-prof's own threads are left out and counted, unless the user selects them.

use crate::harness::{
    machine::{Need, needs},
    script::Run,
};

/// A script that makes two calls per interval, one of them in a thread. The last interval only reads the counts,
/// because all earlier events were delivered or left out by then.
const CALLS: &str = r#"
import os, sys, threading, perf_prof
number = int(sys.argv[1])
handled = intervals = 0
def call():
    try:
        os.getpgid(number)
    except OSError:
        pass
def syscalls__sys_enter_getpgid(event):
    global handled
    handled += 1
def __interval__():
    global intervals
    intervals += 1
    if intervals == 5:
        stats = perf_prof.stats()
        print(handled, stats['delivered'], stats['lost'], stats['own'])
        sys.exit()
    call()
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
"#;

/// Returns what the script prints. The argument of its calls distinguishes them from the calls of other tests: each test has
/// a `base` of its own, a multiple of 10 million.
fn counts(base: u32, options: &[&str]) -> String {
    needs([Need::Tracefs]);
    let number = base + std::process::id();
    let event = format!("syscalls:sys_enter_getpgid/pid=={number}/");
    let run = Run::script(CALLS).event(event).options(["-i", "50"]).options(options).args([number.to_string()]);
    let outcome = run.run();
    assert_eq!((outcome.status, outcome.complaints().as_str()), (0, ""));
    outcome.stdout
}

#[test]
fn own_events_are_left_out_and_counted() {
    assert_eq!(counts(900_000_000, &[]), "0 0 0 8\n");
    assert_eq!(counts(900_000_000, &["--order"]), "0 0 0 8\n");
}

#[test]
fn include_self_delivers_own_events() {
    assert_eq!(counts(920_000_000, &["--include-self"]), "8 8 0 0\n");
}

/// With -t or -p, the user selects tasks, even perf-prof's own.
#[test]
fn own_events_are_delivered_where_the_user_names_perf_prof() {
    needs([Need::Tracefs]);
    let number = 910_000_000 + std::process::id();
    let event = format!("syscalls:sys_enter_getpgid/pid=={number}/");
    let run = Run::script(CALLS).event(event).options(["-i", "50", "-p", "PID"]).args([number.to_string()]);
    let mut words: Vec<_> = run.command().get_args().map(|word| word.to_str().unwrap().to_owned()).collect();
    // exec replaces the shell, so perf-prof gets the shell's process id.
    let pid = words.iter_mut().find(|word| *word == "PID").unwrap();
    "$$".clone_into(pid);
    let quoted = words.iter().map(|word| if word == "$$" { word.clone() } else { format!("'{word}'") });
    let line = format!("exec {} {}", crate::harness::run::tested_program(), quoted.collect::<Vec<_>>().join(" "));
    let output = std::process::Command::new("sh").args(["-c", &line]).current_dir(run.dir.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "8 8 0 0\n", "{output:?}");
}
