//! The source `function:NAME@FILE`, on a program with known calls.

use std::{ffi::OsStr, path::Path};

use expect_test::expect;

use super::{command_live_and_recorded, live_and_recorded, rows};
use crate::harness::{
    compile::{FRAMES, compile},
    machine::{Need, needs},
    run::{perf_prof, said},
    script::Run,
};
#[cfg(target_arch = "x86_64")]
use crate::harness::{counting::objects, run::stdout};

/// A program whose argument is the name of the function to call.
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

/// A script that prints the result of each call, whether the call took at least 20 ms, and its position in the order of
/// the begins.
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

/// Returns what the script prints for a function of the program. `argument` is the program's argument.
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
        // The innermost call sleeps, so all calls around it are as long.
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
        // The order of the begins only includes calls that returned.
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
    // At the first instruction of a function, its own frame is known, and the caller's frame may be missing.
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

/// A program with the function to which all simple statements of PostgreSQL clients lead.
#[cfg(target_arch = "x86_64")]
const STATEMENTS: &str = r#"
#include <unistd.h>
__attribute__((noinline)) int exec_simple_query(const char *query, int rows) {
    if (rows > 1) usleep(20000);
    __asm__ volatile("" :: "r"(query));
    return rows * 2;
}
int main(void) {
    for (int i = 0; i < 3; i++) { exec_simple_query("select 1", 1); exec_simple_query("select * from slow", 9); }
    exec_simple_query("", 0);
    return 0;
}
"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn one_line_gives_the_latency_of_each_statement_by_its_text() {
    needs([Need::Tracefs, Need::Uprobes, Need::Compilers]);
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "postgres", STATEMENTS, FRAMES);
    let selector = format!("function:exec_simple_query@{}//q=+0(%di):string/", program.display());
    let text = stdout(&perf_prof(&["top", "--json", &selector, "--by", "q", "--"]).arg(&program).output().unwrap());
    let rows = objects(&text)[0]["rows"].clone();
    let row = |at: usize| (rows[at]["q"].as_str().unwrap(), rows[at]["count"].as_u64().unwrap());
    assert_eq!([row(0), row(1), row(2)].map(|(_, count)| count).iter().sum::<u64>(), 7);
    assert_eq!(row(0), ("select * from slow", 3));
    assert!(rows[0]["total"].as_u64() > Some(60_000_000), "{rows}");
    // The text can be used in filters, like every field.
    let quoted = program.display().to_string();
    let filtered =
        format!("function:exec_simple_query@\"{quoted}\"/q ~ \"*slow\" && n == 9/q=+0(%di):string/n=%si:s32/");
    let text = stdout(&perf_prof(&["top", "--json", &filtered, "--by", "q,n", "--"]).arg(&program).output().unwrap());
    let rows = objects(&text)[0]["rows"].clone();
    assert_eq!((rows.as_array().unwrap().len(), &rows[0]["count"], &rows[0]["n"]), (1, &3.into(), &9.into()));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn arguments_of_a_call_are_in_the_span_and_in_its_events_live_and_recorded() {
    needs([Need::Tracefs, Need::Uprobes, Need::Compilers]);
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "postgres", STATEMENTS, FRAMES);
    let script = "
def __sample__(e): print(repr(e.q), e.n, e.begin.q == e.q, e.end.twice, e.duration >= 20_000_000)
";
    let expected = "'select 1' 1 True 2 False\n'select * from slow' 9 True 18 True\n".repeat(3) + "'' 0 True 0 False\n";
    let file = program.display();
    let arguments = "q=+0(%di):string/n=%si:s32/end.twice=retval:s32/";
    for selector in [
        format!("function:exec_simple_query@{file}//{arguments}"),
        format!("span:call=uprobe:exec_simple_query@{file}..uretprobe:exec_simple_query@{file}//key=_tid/{arguments}"),
    ] {
        let out = command_live_and_recorded(script, &selector, &[program.as_os_str()]);
        assert_eq!(out, expected, "{selector}");
    }
}

#[test]
fn an_argument_of_a_call_that_cannot_be_read_says_why() {
    needs([Need::Tracefs, Need::Uprobes]);
    for (arguments, expected) in [
        ("q=+0(%nothing):string", "Invalid register name"),
        ("frame=%di", "two arguments have the name `frame`"),
        ("duration=%di", "`duration`"),
        ("q=5", "argument: `5` is not a fetch argument"),
        ("end.q=$arg1", "the arguments of a function are in their registers only where the function starts"),
    ] {
        let selector = format!("function:usleep@libc//{arguments}/");
        let output = perf_prof(&["top", &selector, "--", "true"]).output().unwrap();
        let said = said(&output);
        assert!(!output.status.success() && said.contains(expected), "{arguments}: {said}");
    }
}
