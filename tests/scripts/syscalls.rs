//! Tests `syscalls.py` with a process that makes a known number of system calls.

use std::time::Instant;

use crate::harness::{
    machine::{Need, needs},
    scripts::{on_made_up_events, on_workload, row},
};

const GETPPIDS: usize = 1234;
const RMDIRS: usize = 77;
const OPENS: usize = 55;
const FORKS: usize = 5;
const MOVES: usize = 1000;

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
    // The exec of `env` itself happened before the events were enabled.
    assert_eq!(counted("execve"), 1, "{out}");
    let table = out.lines().skip_while(|line| !line.starts_with("SYSCALL")).skip(1);
    let rows = table.take_while(|line| !line.contains(" calls of "));
    let sum: usize = rows.map(|line| line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()).sum();
    let total = out.lines().find(|line| line.contains(" calls of ")).unwrap();
    assert_eq!(total.split(' ').next().unwrap().parse::<usize>().unwrap(), sum, "{out}");
}

/// `clone` also returns in the child, which did not call it.
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

/// A thread that makes calls on two CPUs in turn, and prints for how long.
pub fn moves() {
    let began = Instant::now();
    // SAFETY: sets of CPUs are plain data, and the calls read and write no more than them.
    unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&cpus), &mut cpus), 0);
        let cpus: Vec<usize> = (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &cpus)).collect();
        for &cpu in cpus.iter().take(2).cycle().take(MOVES) {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut one);
            assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &one), 0);
            libc::usleep(300);
        }
    }
    println!("\nmoves {}", began.elapsed().as_nanos());
}

/// The calls of a thread together cannot take longer than the thread ran.
#[test]
fn syscalls_times_calls_of_a_thread_that_moves() {
    needs([Need::Tracefs]);
    let out = on_workload("syscalls.py", &["--by-pid", "--sort", "calls"], "moves");
    let took: f64 = row(&out, "moves")[1].parse().unwrap();
    let nanoseconds = |number: &str, unit: &str| {
        number.parse::<f64>().unwrap()
            * ["ns", "us", "ms", "s"].iter().position(|u| *u == unit).map(|at| 1e3f64.powi(at as i32)).unwrap()
    };
    let totals = ["sched_setaffinity", "clock_nanosleep"].map(|name| {
        let line = out.lines().find(|line| line.contains(&format!(" {name} "))).unwrap_or_else(|| panic!("{out}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[2], MOVES.to_string(), "{out}");
        nanoseconds(words[3], words[4])
    });
    assert!(totals.iter().sum::<f64>() <= took && totals[1] >= MOVES as f64 * 300e3, "{out}");
    assert!(!out.contains("not timed"), "{out}");
}

#[test]
fn syscalls_counts_exits_of_other_calls_than_the_last_one_entered() {
    needs([Need::Tracefs]);
    let out = on_made_up_events(
        "syscalls.py",
        "
from perf_prof import syscall_nr
read, write, restores = (syscall_nr(name) for name in ('read', 'write', 'rt_sigreturn'))
def enter(at, number): script.raw_syscalls__sys_enter(event(_time=at, _cpu=0, _tid=5, _pid=5, id=number))
def leave(at, number): script.raw_syscalls__sys_exit(event(_time=at, _tid=5, _pid=5, id=number, ret=0))
enter(10, read); leave(15, read)
enter(20, read); leave(25, write)
enter(30, restores); leave(35, -1)
enter(50, write); leave(45, write)
script.__exit__()
",
    );
    assert!(out.contains("wrong order: 2)\n"), "{out}");
    assert_eq!(row(&out, "read")[1..4], ["2", "5", "ns"], "{out}");
}

#[test]
fn syscalls_does_not_time_calls_during_which_events_of_their_cpu_were_lost() {
    needs([Need::Tracefs]);
    let out = on_made_up_events(
        "syscalls.py",
        "
import perf_prof
from perf_prof import syscall_nr
read, write = syscall_nr('read'), syscall_nr('write')
def enter(at, cpu, number): script.raw_syscalls__sys_enter(event(_time=at, _cpu=cpu, _tid=cpu, _pid=5, id=number))
def leave(at, cpu, number): script.raw_syscalls__sys_exit(event(_time=at, _cpu=cpu, _tid=cpu, _pid=5, id=number, ret=0))
enter(10, 0, read); enter(10, 1, write)
perf_prof._parts.lost_cpu = lambda: 1
script.__lost__(15, 20)
leave(30, 0, read); leave(30, 1, write)
enter(40, 1, write); leave(45, 1, write)
script.__exit__()
",
    );
    assert_eq!(row(&out, "read")[1..4], ["1", "20", "ns"], "{out}");
    assert_eq!(row(&out, "write")[1..6], ["2", "5", "ns", "5", "ns"], "{out}");
    assert!(out.contains("events were lost or not read during them: 1)\n"), "{out}");
}
