//! Tests `syscalls.py` with a process that makes a known number of calls.

use crate::harness::{
    machine::{Need, needs},
    scripts::{on_workload, row},
};

const GETPPIDS: usize = 1234;
const RMDIRS: usize = 77;
const OPENS: usize = 55;
const FORKS: usize = 5;

pub fn calls() {
    // SAFETY: the paths end with a NUL; the child of a fork does nothing but exit.
    unsafe {
        for _ in 0..GETPPIDS {
            libc::syscall(libc::SYS_getppid);
        }
        for _ in 0..RMDIRS {
            libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, c"/no/such/directory".as_ptr(), libc::AT_REMOVEDIR);
        }
        for _ in 0..OPENS {
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/dev/null/file".as_ptr(), libc::O_RDONLY);
        }
        for _ in 0..FORKS {
            match libc::fork() {
                0 => libc::_exit(0),
                child => assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child),
            }
        }
    }
}

#[test]
fn syscalls_counts_calls_and_errors_exactly() {
    needs([Need::Tracefs]);
    let out = on_workload("syscalls.py", &["--top", "1000", "--sort", "calls"], "calls");
    let counted = |name: &str| row(&out, name)[1].parse::<usize>().unwrap();
    assert_eq!(counted("getppid"), GETPPIDS, "{out}");
    assert_eq!(counted("unlinkat"), RMDIRS, "{out}");
    assert!(row(&out, "unlinkat").contains(&format!("ENOENT:{RMDIRS}").as_str()), "{out}");
    assert!(row(&out, "openat").contains(&format!("ENOTDIR:{OPENS}").as_str()), "{out}");
    assert!(!row(&out, "getppid").iter().any(|word| word.contains(':')), "{out}");
    // `env` itself was executed before the events started.
    assert_eq!(counted("execve"), 1, "{out}");
    let table = out.lines().skip_while(|line| !line.starts_with("SYSCALL")).skip(1);
    let rows = table.take_while(|line| !line.contains(" calls of "));
    let sum: usize = rows.map(|line| line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()).sum();
    let total = out.lines().find(|line| line.contains(" calls of ")).unwrap();
    assert_eq!(total.split(' ').next().unwrap().parse::<usize>().unwrap(), sum, "{out}");
}

/// `clone` returns in the child, too, but the child did not call it.
#[test]
fn syscalls_counts_a_fork_once() {
    needs([Need::Tracefs]);
    let out = on_workload("syscalls.py", &["--top", "1000"], "calls");
    assert_eq!(row(&out, "clone")[1], FORKS.to_string(), "{out}");
    assert_eq!(row(&out, "exit_group")[1], (FORKS + 1).to_string(), "{out}");
}

#[test]
fn syscalls_has_a_row_for_each_process_and_says_what_it_leaves_out() {
    needs([Need::Tracefs]);
    let out = on_workload("syscalls.py", &["--by-pid", "--top", "3", "--sort", "calls"], "calls");
    let getppid = out.lines().find(|line| line.contains(" getppid ")).unwrap();
    let words: Vec<&str> = getppid.split_whitespace().collect();
    assert!(words[0].parse::<u32>().is_ok() && words[2] == GETPPIDS.to_string(), "{out}");
    assert!(out.contains(" more with a larger --top"), "{out}");
}
