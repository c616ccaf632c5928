//! `function:NAME@FILE`, with a program whose calls are known.

use std::{ffi::OsStr, path::Path};

use expect_test::expect;

use super::{command_live_and_recorded, live_and_recorded, rows};
use crate::harness::{
    compile::{FRAMES, compile},
    machine::{Need, needs},
    script::Run,
};

/// The argument is the name of the function that is called.
const CALLS: &str = r#"
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static jmp_buf out;
static pthread_barrier_t both;

__attribute__((noinline)) int factorial(int n) {
    if (n == 1) usleep(20000);
    int result = n == 1 ? 1 : n * factorial(n - 1);
    __asm__ volatile("");
    return result;
}
__attribute__((noinline)) int parse(int fails) {
    if (fails) longjmp(out, 1);
    __asm__ volatile("");
    return -7;
}
__attribute__((noinline)) int deep(int n, int most) {
    if (n < most) deep(n + 1, most);
    __asm__ volatile("");
    return n;
}
__attribute__((noinline)) static void *in_thread(void *n) {
    pthread_barrier_wait(&both);
    return (void *)(long)factorial((int)(long)n);
}
int main(int argc, char **argv) {
    if (!strcmp(argv[argc - 1], "factorial")) {
        factorial(5);
    } else if (!strcmp(argv[argc - 1], "threads")) {
        pthread_t threads[2];
        pthread_barrier_init(&both, NULL, 2);
        for (long n = 0; n < 2; n++)
            if (pthread_create(&threads[n], NULL, in_thread, (void *)(n + 4))) abort();
        for (int n = 0; n < 2; n++) pthread_join(threads[n], NULL);
    } else if (!strcmp(argv[argc - 1], "parse")) {
        for (volatile int i = 0; i < 20; i++)
            if (!setjmp(out)) parse(1);
        usleep(50000);
        for (volatile int i = 0; i < 10; i++) parse(0);
    } else {
        for (int i = 0; i < 3; i++) deep(1, 100);
    }
    return 0;
}
"#;

/// Prints the result of each call, whether it took at least 20 ms, and its place in the order of the calls' begins.
const SCRIPT: &str = "
import perf_prof

calls = []

def __sample__(e):
    calls.append(e)

def __exit__():
    begins = sorted((e.begin._time, e._tid) for e in calls)
    for e in calls:
        print('seen', e._event, e.name, e.ret, e.duration >= 20_000_000, begins.index((e.begin._time, e._tid)), e._tid == e.begin._tid)
    event, = {e._event for e in calls}
    counts = perf_prof.stats()['events'][event]
    print('counts', *(counts[name] for name in ('opened', 'ended', 'without_begin')), counts['open'] + counts['dropped'])
";

fn program(folder: &Path) -> std::path::PathBuf {
    let options = [FRAMES, &["-g", "-pthread"]].concat();
    compile(folder, "calls", CALLS, &options)
}

/// Returns what the script prints for a function of the program, which gets this argument.
fn calls(function: &str, argument: &str) -> String {
    needs([Need::Tracefs, Need::Uprobes, Need::Compilers]);
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let selector = format!("function:{function}@{}", program.display());
    command_live_and_recorded(SCRIPT, &selector, &[program.as_os_str(), OsStr::new(argument)])
}

#[test]
fn recursive_calls_end_in_their_order() {
    let out = calls("factorial", "factorial");
    let seen = rows(&out, "seen");
    for (row, (result, begin)) in seen.iter().zip([("1", "4"), ("2", "3"), ("6", "2"), ("24", "1"), ("120", "0")]) {
        // The innermost call sleeps.
        assert_eq!(row, &["function:factorial", "factorial", result, "True", begin, "True"], "{out}");
    }
    assert_eq!(rows(&out, "counts"), [["5", "5", "0", "0"]], "{out}");
}

#[test]
fn calls_of_several_threads_are_told_apart() {
    let out = calls("factorial", "threads");
    let mut results: Vec<&str> = rows(&out, "seen").iter().map(|row| row[2]).collect();
    results.sort_unstable();
    assert_eq!(results, ["1", "1", "120", "2", "2", "24", "24", "6", "6"], "{out}");
    assert!(rows(&out, "seen").iter().all(|row| row[3] == "True" && row[5] == "True"), "{out}");
    assert_eq!(rows(&out, "counts"), [["9", "9", "0", "0"]], "{out}");
}

/// A call that ends by longjmp() looks as if it were still open. It must not end with a later return.
#[test]
fn a_call_that_ends_by_longjmp_does_not_end_with_another() {
    let out = calls("parse", "parse");
    let seen = rows(&out, "seen");
    assert_eq!(seen.len(), 10, "{out}");
    for (at, row) in seen.iter().enumerate() {
        let at = at.to_string();
        assert_eq!((row[1], row[2], row[4]), ("parse", "-7", at.as_str()), "{out}");
    }
    assert_eq!(rows(&out, "counts"), [["30", "10", "0", "20"]], "{out}");
}

/// The kernel reports only the returns of the 64 outermost calls of a thread.
#[test]
fn a_return_that_the_kernel_does_not_report_ends_no_other_call() {
    let out = calls("deep", "deep");
    let seen = rows(&out, "seen");
    assert_eq!(seen.len(), 3 * 64, "{out}");
    for (at, row) in seen.iter().enumerate() {
        let (round, depth) = (at / 64, 64 - at % 64);
        // Only the calls that returned are in the order of the begins.
        let begin = (64 * round + depth - 1).to_string();
        assert_eq!((row[2], row[4]), (depth.to_string().as_str(), begin.as_str()), "{out}");
    }
    assert_eq!(rows(&out, "counts"), [["300", "192", "0", "108"]], "{out}");
}

#[test]
fn a_call_has_the_call_chain_of_its_entry() {
    needs([Need::Tracefs, Need::Uprobes, Need::Compilers]);
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let script = "
def __sample__(e):
    names = [frame['symbol'] for frame in e._callchain]
    print(e.ret, names.count('factorial'), 'main' in names)
";
    let selector = format!("function:factorial@{}//stack/", program.display());
    let outcome = Run::script(script).event(selector).exec([program.as_os_str(), OsStr::new("factorial")]).run();
    assert_eq!((outcome.stdout.lines().count(), outcome.status), (5, 0), "{}{}", outcome.stdout, outcome.stderr);
    // At the first instruction of a function, its own frame is there, and that of its caller may be missing.
    for (line, result) in outcome.stdout.lines().zip(["1", "2", "6", "24", "120"]) {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words[0] == result && words[1] != "0" && (result == "120" || words[2] == "True"), "{}", outcome.stdout);
    }
}

#[test]
fn tasks_are_selected_by_their_names_although_no_field_has_them() {
    needs([Need::Tracefs, Need::Uprobes]);
    live_and_recorded(
        "
def __sample__(e): print(e.name, e.comm)
",
        "function:usleep@libc/comm=one|th*/",
        "comm one sleep-ms 1 comm two sleep-ms 1 comm three sleep-ms 1 sleep-ms 1 comm One sleep-ms 1",
        expect![[r#"
            usleep one
            usleep three
            usleep three
        "#]],
    );
}
