//! The source `process`, on children that end in known ways.

use std::collections::BTreeMap;

use super::{command_live_and_recorded, rows};
use crate::harness::{
    compile::compile,
    machine::{Need, needs},
};

/// A program that starts children, one after the other. For each, it prints its name, its id, its exit code, and the
/// signal that ended it, from waitpid(): `truth NAME ID CODE SIGNAL`.
const CHILDREN: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *shell;

static void caught(int signal) { (void)signal; }
static void *exits_later(void *code) { usleep(20000); exit((int)(long)code); }
static void *waits(void *nothing) { pause(); return nothing; }
static void *executes(void *nothing) { usleep(10000); execl(shell, "sh", "-c", "exit 8", NULL); return nothing; }

static void thread(void *(*run)(void *), long argument) {
    pthread_t id;
    if (pthread_create(&id, NULL, run, (void *)argument)) abort();
}

static void ready(int fd) { if (write(fd, "x", 1) != 1) abort(); }

static void child(const char *name, void (*run)(int), int kill_by) {
    int fds[2], status;
    char byte;
    if (pipe(fds)) abort();
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) { prctl(PR_SET_NAME, name); run(fds[1]); _exit(99); }
    if (kill_by) {
        if (read(fds[0], &byte, 1) != 1) abort();
        kill(pid, kill_by);
    }
    waitpid(pid, &status, 0);
    close(fds[0]);
    close(fds[1]);
    printf("truth %s %d %d %d\n", name, pid, WIFEXITED(status) ? WEXITSTATUS(status) : -1,
           WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static void code(int fd) { (void)fd; _exit(3); }
static void large(int fd) { (void)fd; _exit(0x1234); }
static void raw(int fd) { (void)fd; syscall(SYS_exit, 4); }
static void segv(int fd) { (void)fd; int *volatile nowhere = 0; *nowhere = 1; }
static void aborts(int fd) { (void)fd; abort(); }
static void runs(int fd) { (void)fd; execl(shell, "sh", "-c", "exit 5", NULL); }
static void killed(int fd) { ready(fd); pause(); }
static void killed_threads(int fd) { thread(waits, 0); thread(waits, 0); ready(fd); pause(); }
static void handles(int fd) {
    sigset_t set, none;
    sigemptyset(&none);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGTERM, caught);
    ready(fd);
    sigsuspend(&none);
    _exit(6);
}
static void handles_first(int fd) {
    signal(SIGUSR1, caught);
    raise(SIGUSR1);
    ready(fd);
    pause();
}
static void unblocks(int fd) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    ready(fd);
    while (sigpending(&set), !sigismember(&set, SIGTERM)) usleep(1000);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    pause();
}
static void last_thread(int fd) { (void)fd; thread(exits_later, 7); pthread_exit(NULL); }
static void other_executes(int fd) { (void)fd; thread(executes, 0); thread(waits, 0); pause(); }
static void ignores(int fd) { signal(SIGTERM, SIG_IGN); ready(fd); usleep(20000); _exit(9); }

int main(int argc, char **argv) {
    (void)argc;
    shell = argv[1];
    child("t-code", code, 0);
    child("t-large", large, 0);
    child("t-raw", raw, 0);
    child("t-segv", segv, 0);
    child("t-aborts", aborts, 0);
    child("t-runs", runs, 0);
    child("t-kill", killed, SIGKILL);
    child("t-term", killed, SIGTERM);
    child("t-usr2", killed_threads, SIGUSR2);
    child("t-rt", killed, SIGRTMIN + 3);
    child("t-handles", handles, SIGTERM);
    child("t-handles-first", handles_first, SIGHUP);
    child("t-unblocks", unblocks, SIGTERM);
    child("t-last-thread", last_thread, 0);
    child("t-other-executes", other_executes, 0);
    child("t-ignores", ignores, SIGTERM);
    return 0;
}
"#;

/// A script that prints the members of each process, and the numbers of spans.
const SCRIPT: &str = "
import perf_prof

def process(e):
    print('seen', e.comm, e.pid, e.exit_code, e.signal or '-', e.ppid, e.filename or '-', e.duration > 0, e._pid == e.pid,
        e.parent_comm, e.sender_comm or '-', e.sender_pid, e.by_kernel)

def __exit__():
    counts = perf_prof.stats()['events']['process']
    print('counts', counts['opened'] == counts['ended'] + counts['open'] + counts['dropped'])
";

#[test]
fn a_process_has_its_exit_code_or_its_signal_and_who_sent_it() {
    needs([Need::Tracefs, Need::Compilers]);
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "children", CHILDREN, &["-O1", "-pthread"]);
    // The comm of the shell starts like the comms of its children.
    let shell = folder.path().join("t-shell");
    std::os::unix::fs::symlink("/bin/sh", &shell).unwrap();
    let out = command_live_and_recorded(SCRIPT, "process/comm=t-*/", &[program.as_os_str(), shell.as_os_str()]);
    let seen: BTreeMap<&str, Vec<&str>> = rows(&out, "seen").into_iter().map(|words| (words[1], words)).collect();
    let truths = rows(&out, "truth");
    assert_eq!(truths.len(), 16, "{out}");
    let parents: Vec<&str> = seen.values().map(|words| words[4]).collect();
    assert!(parents.iter().all(|parent| *parent == parents[0]), "{out}");
    for truth in &truths {
        let [name, pid, code, signal] = truth[..] else { panic!("{out}") };
        let words = seen.get(pid).unwrap_or_else(|| panic!("{name}: {out}"));
        let signal = match signal.parse::<i32>().unwrap() {
            0 => "-".to_owned(),
            libc::SIGKILL => "SIGKILL".to_owned(),
            libc::SIGTERM => "SIGTERM".to_owned(),
            libc::SIGSEGV => "SIGSEGV".to_owned(),
            libc::SIGABRT => "SIGABRT".to_owned(),
            libc::SIGUSR2 => "SIGUSR2".to_owned(),
            libc::SIGHUP => "SIGHUP".to_owned(),
            number => format!("SIGRTMIN+{}", number - libc::SIGRTMIN()),
        };
        assert_eq!((words[2], words[3]), (code, signal.as_str()), "{name}: {out}");
        let (comm, file) = match name {
            "t-runs" | "t-other-executes" => ("t-shell", shell.to_str().unwrap()),
            name => (name, "-"),
        };
        assert_eq!((words[0], words[5], words[6]), (comm, file, "True"), "{out}");
        // The parent had this comm when it created the process.
        assert_eq!((words[7], words[8]), ("True", "children"), "{name}: {out}");
        let sender = match signal.as_str() {
            "-" => ["-", "-1", "0"],
            "SIGSEGV" => ["-", "-1", "1"],
            "SIGABRT" => [name, pid, "0"],
            _ => ["children", parents[0], "0"],
        };
        assert_eq!(words[9..12], sender, "{name}: {out}");
    }
    // Threads are no processes.
    assert_eq!(seen.len(), truths.len(), "{out}");
    assert_eq!(rows(&out, "counts"), [["True"]], "{out}");
}
