//! The source `syscall`.

use expect_test::expect;

use super::live_and_recorded;
use crate::harness::{
    machine::{Need, needs, needs_paths},
    recording::{Folder, record_here},
    run::{perf_prof, printed, stdout},
    script::Run,
};

#[test]
fn a_system_call_has_its_name_its_arguments_and_its_error() {
    // All calls but one are about the caller itself, so they succeed on every machine.
    let operations = format!(
        "comm caller call 0 syscall {getsid} 0 0 0 syscall {getsid} 2147483647 0 0 call 0",
        getsid = libc::SYS_getsid
    );
    live_and_recorded(
        "
def syscall(e):
    print(e._event, e.name, e.args[0], e.ret >= 0, e.errno, e.comm, e.begin.id == e.end.id == e.nr)
",
        "syscall/name=getpgid|getsid, comm=caller/",
        &operations,
        expect![[r#"
            syscall getpgid 0 True  caller True
            syscall getsid 0 True  caller True
            syscall getsid 2147483647 False ESRCH caller True
            syscall getpgid 0 True  caller True
        "#]],
    );
}

#[test]
fn calls_that_failed_are_selected_by_an_option() {
    let operations =
        format!("call 1 syscall {getsid} 0 0 0 syscall {getsid} 2147483647 0 0", getsid = libc::SYS_getsid);
    live_and_recorded(
        "
def syscall(e): print(e.name, e.errno)
",
        "syscall/name=get?id|getpgid, failed/",
        &operations,
        expect![[r#"
            getsid ESRCH
        "#]],
    );
}

/// rt_sigreturn() restores the registers of the interrupted code, so its exit has another number than its entry.
#[test]
fn the_return_from_a_signal_handler_ends_its_call() {
    needs([Need::Tracefs]);
    const HANDLED: &str = "
import os, signal
open('/proc/self/comm', 'w').write('own-signals')
signal.signal(signal.SIGUSR1, lambda *_: None)
for _ in range(10):
    os.kill(os.getpid(), signal.SIGUSR1)
";
    for selector in ["syscall", "syscall/name=rt_sigreturn/"] {
        let script = "
import perf_prof
calls = []
def syscall(e):
    if e.name == 'rt_sigreturn' and e.comm == 'own-signals': calls.append(e.errno)
def __exit__():
    counts = perf_prof.stats()['events']['syscall']
    print(calls, counts['dropped'])
";
        let outcome = Run::script(script).event(selector).exec(["python3", "-c", HANDLED]).run();
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        let calls = ["''"; 10].join(", ");
        assert_eq!(outcome.stdout, format!("[{calls}] 0\n"), "{selector}: {}", outcome.stderr);
    }
}

/// No thread returns from exit() and exit_group(), so no event ends these calls.
#[test]
fn a_task_that_has_exited_has_no_open_call() {
    needs([Need::Tracefs]);
    const THREADS: &str = "
import threading, time
for _ in range(5):
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
";
    let selector = "syscall/open/";
    let shell = ["sh", "-c", "/bin/true; /bin/true; python3 -c \"$0\"; kill -9 $$", THREADS];
    let folder = Folder::new();
    let path = folder.path("calls.data");
    let events = ["-e", "raw_syscalls:sys_enter,raw_syscalls:sys_exit", "-m", "2048", "--"];
    record_here(&path, &[&events[..], &["sh", "-c", "\"$@\"; true", "sh"], &shell].concat());
    let recorded =
        printed(&perf_prof(&["trace", "--input"]).arg(&path).args(["-e", selector, "--json"]).output().unwrap());
    let live = perf_prof(&["trace", "-m", "2048", "-e", selector, "--json", "--"]).args(shell).output().unwrap();
    let live = String::from_utf8(live.stdout).unwrap();
    for lines in [recorded, live.lines().map(str::to_owned).collect()] {
        let calls: Vec<&String> = lines.iter().filter(|line| line.contains("\"_event\":")).collect();
        let open: Vec<_> =
            calls.iter().filter(|line| line.contains("\"open\":1") || line.contains("\"open\":true")).collect();
        assert!(calls.len() > 100, "{lines:?}");
        assert!(open.is_empty(), "{open:#?}");
    }
}

/// A program that removes a file in a folder whose path is too deep for the kernel's program, and then one in its first folder.
const DEEP: &str = "
import os
open('/proc/self/comm', 'w').write('deep-remover')
first = os.open('.', os.O_RDONLY)
for _ in range(110):
    os.mkdir('d' * 12)
    os.chdir('d' * 12)
for at in range(5):
    os.close(os.open(f'q{at}', os.O_CREAT))
    os.unlink(f'q{at}')
os.fchdir(first)
os.close(os.open('top', os.O_CREAT))
os.unlink('top')
";

#[test]
fn a_filter_over_paths_counts_the_calls_whose_path_is_not_known() {
    needs_paths();
    let folder = Folder::new();
    let of_folder = format!("path ~ \"{}/*\"", folder.path("").display().to_string().trim_end_matches('/'));
    let run = |filter: &str| {
        let selector = format!("syscall/{filter}/name=unlink/str/");
        let mut top = perf_prof(&["top", &selector, "--by", "comm,path", "--", "python3", "-c", DEEP]);
        let output = top.current_dir(folder.path("")).output().unwrap();
        std::fs::remove_dir_all(folder.path(&"d".repeat(12))).unwrap();
        stdout(&output)
    };
    let (all, some) = (run("comm == \"deep-remover\""), run(&of_folder));
    assert!(all.contains("total: 6 "), "{all}");
    assert!(some.contains("total: at least 1 ") && some.contains("5 calls have a path that is not known"), "{some}");
    // The path of the only name is known or not, and there is no second name.
    let second = run("comm == \"deep-remover\" && new_path ~ \"/no/*\"");
    assert!(second.contains("total: 0 ") && !second.contains("not known"), "{second}");
    // A call that another part of the filter refuses is complete.
    let refused = run(&format!("ret == 7 && {of_folder}"));
    assert!(!refused.contains("not known"), "{refused}");
}
