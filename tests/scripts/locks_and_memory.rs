//! `lockstat.py` and `memleak.py` on programs that wait for known locks and leak known memory.

use std::process::Command;

use crate::{
    harness::{
        compile::{FRAMES, compile},
        machine::{Need, needs},
        scripts::{objects, on_workload, row, script, text},
        workload::words,
    },
    sources::numbers,
};

/// A program that waits for a futex five times, each time until the time limit of 20 ms. After each wait, it calls
/// FUTEX_WAKE. `lockstat.py` must not count these calls as waits.
const FUTEXES: &str = r#"
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static int word;
__attribute__((noinline)) static long wait_for_word(void) {
    struct timespec limit = {0, 20000000};
    return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &limit, 0, 0) + 1;
}
int main(void) {
    long sum = 0;
    for (int i = 0; i < 5; i++) {
        sum += wait_for_word();
        sum += syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
    }
    return sum;
}
"#;

/// Returns the rows of a table as words.
fn rows(out: &str) -> Vec<Vec<&str>> {
    out.lines().map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn lockstat_shows_where_a_program_waits_for_a_futex() {
    needs([Need::Tracefs, Need::Compilers]);
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "futexes", FUTEXES, FRAMES);
    let out = text(script("lockstat.py").args(["--futex", "--exec"]).arg(program).output().unwrap());
    let rows = rows(&out);
    let row = rows.iter().find(|row| row.first() == Some(&"futex")).unwrap_or_else(|| panic!("{out}"));
    let [total, longest] = [2, 3].map(|at| row[at].parse::<f64>().unwrap());
    assert_eq!((row[1], &row[4..]), ("5", &["futexes:", "main"][..]), "{out}");
    assert!(total >= 100.0 && longest >= 20.0 && longest <= total, "{out}");
    assert!(out.ends_with("5 waits in 1 row\n\n"), "{out}");
}

/// A program with three threads. `slow` holds the first lock. `middle` holds the second lock and waits for the first.
/// `last` waits for the second lock. `slow` releases its lock when /proc shows that both wait. It prints its thread id.
const CHAIN: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static volatile long ids[3], has_first;
static void waits(int thread) {
    char path[64], call[256] = "";
    while (strncmp(call, "202 ", 4)) {
        usleep(1000);
        snprintf(path, sizeof path, "/proc/self/task/%ld/syscall", ids[thread]);
        FILE *file = fopen(path, "r");
        if (file) {
            fgets(call, sizeof call, file);
            fclose(file);
        }
    }
    usleep(50000);
}
__attribute__((noinline)) static void flush(void) {
    pthread_mutex_lock(&first);
    has_first = 1;
    waits(1);
    waits(2);
    pthread_mutex_unlock(&first);
    __asm__ volatile("");
}
static void *slow(void *of) {
    prctl(PR_SET_NAME, "slow");
    printf("\nslow %ld\n", ids[0] = syscall(SYS_gettid));
    flush();
    return of;
}
static void *middle(void *of) {
    prctl(PR_SET_NAME, "middle");
    while (!has_first) usleep(1000);
    pthread_mutex_lock(&second);
    ids[1] = syscall(SYS_gettid);
    pthread_mutex_lock(&first);
    pthread_mutex_unlock(&first);
    pthread_mutex_unlock(&second);
    return of;
}
static void *last(void *of) {
    prctl(PR_SET_NAME, "last");
    while (!ids[1]) usleep(1000);
    ids[2] = syscall(SYS_gettid);
    pthread_mutex_lock(&second);
    pthread_mutex_unlock(&second);
    return of;
}
int main(void) {
    void *(*of[])(void *) = {slow, middle, last};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(threads + i, 0, of[i], 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    return 0;
}
"#;

#[test]
fn lockstat_shows_the_holder_of_a_futex_at_the_start_of_a_chain() {
    needs([Need::Tracefs, Need::Compilers]);
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "chain", CHAIN, &["-O0", "-pthread"]);
    let args = ["--futex", "--call-graph", "dwarf", "--exec"];
    let out = text(script("lockstat.py").args(args).arg(&program).output().unwrap());
    let tid = row(&out, "slow")[1];
    let held = |waiter: &str| {
        let mut lines = out.lines().skip_while(|line| !line.ends_with(&format!("  {waiter}")));
        lines.nth(1).unwrap_or_else(|| panic!("{out}")).trim().to_owned()
    };
    assert_eq!(held("middle: middle"), format!("held: 100% slow {tid}: flush"), "{out}");
    assert_eq!(held("last: last"), format!("held: 100% slow {tid}: flush, through 1 other"), "{out}");
}

#[test]
fn lockstat_shows_waits_for_locks_of_the_kernel() {
    needs([Need::Tracefs]);
    let out = on_workload("lockstat.py", &["--kernel", "--top", "1000"], "locks");
    let own = out.lines().filter_map(|line| line.strip_prefix("own ")).map(numbers);
    let took: f64 = own.map(|row| row[1] as f64 / 1e6).sum();
    let rows = rows(&out);
    let writers: Vec<&Vec<&str>> = rows.iter().filter(|row| row.first() == Some(&"rwsem:W")).collect();
    let total: f64 = writers.iter().map(|row| row[2].parse::<f64>().unwrap()).sum();
    assert!(!writers.is_empty() && total > 0.0 && total <= took + 10.0, "{took}: {out}");
    // The functions that take locks are no places.
    assert!(rows.iter().all(|row| row.get(4).is_none_or(|place| !place.contains("slowpath"))), "{out}");
}

#[test]
fn memleak_shows_the_messages_that_nobody_receives() {
    needs([Need::Tracefs]);
    // Other tasks allocate too. If this causes a loss, open allocations are forgotten, and the run proves nothing.
    let runs = (0..10).map(|_| {
        let mut memleak = script("memleak.py");
        let output =
            memleak.args(["-m", "16M", "--top", "100000", "--exec"]).args(words("allocations")).output().unwrap();
        // A message about memory that was freed without an event is allowed.
        let (out, err) = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).into();
        assert!(output.status.success() && !err.contains("Traceback"), "{err}");
        let queue = out.lines().find_map(|line| line.strip_prefix("own ")).unwrap();
        // SAFETY: the call removes the queue of the workload, and takes no pointer that is used.
        unsafe { libc::msgctl(queue.parse().unwrap(), libc::IPC_RMID, std::ptr::null_mut()) };
        (out, err)
    });
    let (out, _) = { runs }.find(|(_, err)| !err.contains("lost")).expect("each of the runs lost events");
    let mut title = "";
    let mut titles = Vec::new();
    for line in out.lines() {
        match line.starts_with(' ') {
            false => title = line,
            true if line.trim() == "do_msgsnd" => titles.push(title),
            true => {}
        }
    }
    // An interrupt during the call may allocate too.
    let messages = titles.iter().filter(|title| title.ends_with(" bytes in 3 allocations"));
    assert_eq!(messages.count(), 1, "{titles:?} in {out}");
}

/// A program that allocates 10 times 12,345 bytes, frees 7 of them, and calls the other allocating functions. With an
/// argument, it then allocates without end.
const LEAKS: &str = r#"
#include <stdlib.h>
#include <unistd.h>
#define KEPT(pointer) __asm__ volatile("" :: "r"(pointer))
__attribute__((noinline)) static void *wants(void) { void *memory = malloc(12345); KEPT(memory); return memory; }
__attribute__((noinline)) static void *leaks(void) { void *memory = wants(); KEPT(memory); return memory; }
__attribute__((noinline)) static void *zeroed(void) { void *memory = calloc(100, 123); KEPT(memory); return memory; }
__attribute__((noinline)) static void *grown(void) { void *memory = realloc(malloc(10), 23456); KEPT(memory); return memory; }
__attribute__((noinline)) static void *aligned(void) { void *memory = aligned_alloc(4096, 8192); KEPT(memory); return memory; }
int main(int count, char **words) {
    for (int i = 0; i < 10; i++) {
        void *memory = leaks();
        if (i < 7)
            free(memory);
    }
    zeroed();
    free(grown());
    grown();
    aligned();
    while (count > 1) {
        free(zeroed());
        leaks();
        usleep(1000);
    }
    return 0;
}
"#;

#[test]
fn mallocleak_shows_the_memory_that_a_program_does_not_free() {
    needs([Need::Tracefs, Need::Compilers, Need::Uprobes]);
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "leaks", LEAKS, FRAMES);
    let out = text(script("mallocleak.py").args(["--top", "1000", "--json", "--exec"]).arg(&program).output().unwrap());
    let rows = objects(&out);
    let of = |place: &str| {
        let frames = |row: &serde_json::Value| row["chain"].as_array().unwrap().iter().any(|frame| frame == place);
        let row = rows.iter().find(|row| frames(row)).unwrap_or_else(|| panic!("no {place} in {out}"));
        (row["bytes"].as_u64().unwrap(), row["count"].as_u64().unwrap())
    };
    // The first frame is the function of libc. It may have other names, and its caller may be missing.
    assert_eq!((of("leaks"), of("main").1 > 0), ((3 * 12345, 3), true), "{out}");
    let sums: Vec<u64> = rows.iter().map(|row| row["bytes"].as_u64().unwrap()).collect();
    for size in [12300, 23456, 8192] {
        assert!(sums.contains(&size), "{size} in {out}");
    }
}

/// README's row about growing memory: a process that runs already, and leaks.
#[test]
fn mallocleak_finds_the_leak_of_a_running_process() {
    needs([Need::Tracefs, Need::Compilers, Need::Uprobes]);
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "leaks", LEAKS, FRAMES);
    let mut leaking = Command::new(&program).arg("without end").spawn().unwrap();
    let pid = leaking.id().to_string();
    let out = script("mallocleak.py").args(["-p", &pid, "--duration", "2s", "--json"]).output();
    leaking.kill().unwrap();
    leaking.wait().unwrap();
    let out = text(out.unwrap());
    let rows = objects(&out);
    // The last call may not have freed its memory yet.
    let largest = rows.first().unwrap_or_else(|| panic!("{out}"));
    assert!(largest["chain"].as_array().unwrap().iter().any(|frame| frame == "leaks"), "{out}");
    assert!(largest["bytes"].as_u64().unwrap() > 10 * 12345, "{out}");
    // memleak.py says that it does not show the memory of programs, and names mallocleak.py.
    let out = text(script("memleak.py").args(["-q", "--exec", "true"]).output().unwrap());
    assert!(out.contains(" bytes of the kernel in ") && out.contains("mallocleak.py -p PID"), "{out}");
}
