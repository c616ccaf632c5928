//! Tests `uprobe_latency.py` on programs that measure their own calls.

use std::{fs, path::Path, process::Command};

use crate::{
    harness::compile::FRAMES,
    harness::{
        compile::compile,
        machine::{Need, needs, skip},
        scripts::{row, script, text},
    },
};

/// A program that measures its own calls, and prints their number and time: `NAME COUNT NANOSECONDS`.
const MEASURED: &str = r#"
#include <stdio.h>
#include <time.h>
static unsigned long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ul + t.tv_nsec;
}
__attribute__((noinline)) void nap(void) {
    struct timespec t = {0, 5000000};
    nanosleep(&t, 0);
}
__attribute__((noinline)) int nested(int n) {
    int more = n ? nested(n - 1) : 0;
    __asm__ volatile("");
    return more + 1;
}
int main(void) {
    unsigned long begun = now();
    for (int i = 0; i < 20; i++)
        nap();
    printf("\nnaps 20 %lu\n", now() - begun);
    begun = now();
    for (int i = 0; i < 30; i++)
        nested(9);
    printf("nests 300 %lu\n", now() - begun);
    return 0;
}
"#;

#[test]
fn uprobe_latency_agrees_with_the_programs_own_clock() {
    needs([Need::Tracefs, Need::Uprobes]);
    let directory = tempfile::tempdir().unwrap();
    let [source, program] = ["m.c", "m"].map(|name| directory.path().join(name));
    fs::write(&source, MEASURED).unwrap();
    let Ok(status) = Command::new("gcc").args(["-O1", "-o"]).args([&program, &source]).status() else {
        skip(Need::Compilers, "no gcc");
    };
    assert!(status.success());
    let mut command = script("uprobe_latency.py");
    for function in ["nap", "nested"] {
        command.args(["-e", &format!("function:{function}@{}", program.display())]);
    }
    let out = text(command.arg("--exec").arg(&program).output().unwrap());
    // `nap: 20 calls, mean 5123.456 us, longest 5234.567 us`
    let seen = |name: &str| {
        let words = row(&out, &format!("{name}:"));
        (words[1].parse::<u64>().unwrap(), (words[4].parse::<f64>().unwrap() * 1000.0) as u64)
    };
    let own = |name: &str| {
        let words = row(&out, name);
        (words[1].parse::<u64>().unwrap(), words[2].parse::<u64>().unwrap())
    };
    let ((count, mean), (own_count, own_time)) = (seen("nap"), own("naps"));
    assert_eq!(count, own_count, "{out}");
    // The program's times include the cost of the probes around the calls, and the script's times do not. Both are at
    // least as long as a nap, but the two clocks may run at slightly different speeds.
    assert!((4_950_000..=own_time / own_count * 101 / 100).contains(&mean), "{out}");

    // Each of ten nested calls is at most as long as the outermost call.
    let ((count, mean), (own_count, own_time)) = (seen("nested"), own("nests"));
    assert_eq!(count, own_count, "{out}");
    assert!(mean > 0 && mean * 30 <= own_time * 101 / 100, "{out}");
    assert!(!out.contains("not counted"), "{out}");
    // The rows of the histogram add up to all calls.
    let histogram = out.split("nested: ").nth(1).unwrap().lines().skip(2).take_while(|line| !line.is_empty());
    let rows = histogram.filter_map(|line| line.split_once(" : ")?.1.split_whitespace().next()?.parse::<u64>().ok());
    assert_eq!(rows.sum::<u64>(), 300, "{out}");
}

/// The kernel reports only the returns of the 64 outermost calls. They must not be taken for returns of the innermost
/// calls.
#[test]
fn uprobe_latency_times_no_calls_whose_return_the_kernel_does_not_report() {
    needs([Need::Tracefs, Need::Uprobes]);
    // The calls nest 100 deep, and the 40th call sleeps.
    const DEEP: &str = "#include <unistd.h>
__attribute__((noinline)) int deep(int n) {
    if (n == 40) usleep(3000);
    int more = n < 100 ? deep(n + 1) : 0;
    __asm__ volatile(\"\");
    return more + 1;
}
__attribute__((noinline)) int outer(void) { return deep(1) + 1; }
int main(void) { for (int i = 0; i < 5; i++) outer(); return 0; }
";
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "deep", DEEP, FRAMES);
    let out = latencies(&program, &["outer", "deep"]);
    // Only the outermost calls return: 63 of `deep` within one of `outer`. The stack pointer identifies a call. So the
    // calls up to the sleeping one are as long as the sleep, and the deeper calls have no return.
    let deep = row(&out, "deep:");
    assert!(deep[1] == "315" && deep[7].parse::<f64>().unwrap() > 2950.0, "{out}");
    let histogram = out.split("deep: ").nth(1).unwrap().lines().skip(2).take_while(|line| !line.is_empty());
    let slow = histogram.filter_map(|line| {
        let (range, rest) = line.split_once(" : ")?;
        let least: u64 = range.split_whitespace().next()?.parse().ok()?;
        (least >= 2048).then(|| rest.split_whitespace().next()?.parse::<u64>().ok())?
    });
    assert!(slow.sum::<u64>() >= 200, "{out}");
    // The calls of the last round are still open, because no other call has taken their places on the stack.
    assert!(out.contains("(calls that are not timed, because their return was not reported or events were lost: 148)"));
    assert!(!out.contains("not counted"), "{out}");
    let outer = row(&out, "outer:");
    assert!(outer[1] == "5" && outer[4].parse::<f64>().unwrap() > 2950.0, "{out}");
    let alone = latencies(&program, &["deep"]);
    assert_eq!(row(&alone, "deep:")[1], "320", "{alone}");
}

/// A call that ended by longjmp() looks as if it were still open. No later return may be paired with its entry, even
/// after 64 such calls.
#[test]
fn uprobe_latency_times_no_call_from_the_entry_of_a_call_that_ended_by_longjmp() {
    needs([Need::Tracefs, Need::Uprobes]);
    // 100 calls end by longjmp(). After a sleep, 50 calls return at once. After another sleep, 50 calls return, each
    // after a call that ends by longjmp().
    const THROWS: &str = "#include <setjmp.h>
#include <unistd.h>
static jmp_buf out;
__attribute__((noinline)) int parse(int fails) {
    if (fails) longjmp(out, 1);
    __asm__ volatile(\"\");
    return 1;
}
__attribute__((noinline)) int other(void) { __asm__ volatile(\"\"); return 2; }
int main(void) {
    for (volatile int i = 0; i < 100; i++)
        if (!setjmp(out)) parse(1);
    sleep(1);
    for (volatile int i = 0; i < 50; i++) parse(0);
    for (volatile int i = 0; i < 50; i++) other();
    sleep(1);
    for (volatile int i = 0; i < 50; i++) {
        if (!setjmp(out)) parse(1);
        parse(0);
    }
    for (volatile int i = 0; i < 50; i++) other();
    return 0;
}
";
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "throws", THROWS, FRAMES);
    let out = latencies(&program, &["parse", "other"]);
    for (function, calls) in [("parse:", "100"), ("other:", "100")] {
        let words = row(&out, function);
        assert_eq!(words[1], calls, "{out}");
        assert!(words[7].parse::<f64>().unwrap() < 1_000_000.0, "{out}");
    }
    // A call that ended by longjmp() stays open until the next call takes its place on the stack.
    assert!(out.contains("not reported or events were lost: 150)") && !out.contains("not counted"), "{out}");
}

/// Returns what the script prints for these functions of a program.
fn latencies(program: &Path, functions: &[&str]) -> String {
    let mut command = script("uprobe_latency.py");
    for function in functions {
        command.args(["-e", &format!("function:{function}@{}", program.display())]);
    }
    text(command.arg("--exec").arg(program).output().unwrap())
}

/// A probe is no call, so the script names the selector for calls.
#[test]
fn uprobe_latency_says_which_function_to_select() {
    needs([Need::Tracefs, Need::Uprobes]);
    for kind in ["uprobe", "uretprobe"] {
        let out = script("uprobe_latency.py").args(["-e", &format!("{kind}:getpid@libc"), "--exec", "true"]).output();
        let out = out.unwrap();
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{err}");
        assert!(
            err.contains(&format!("{kind}:getpid is selected")) && err.contains("select function:getpid@"),
            "{err}"
        );
    }
}

/// Each function has its own histogram.
#[test]
fn uprobe_latency_tells_functions_of_one_name_in_two_files_apart() {
    needs([Need::Tracefs, Need::Uprobes]);
    const TWICE: &str = "#include <unistd.h>
__attribute__((noinline)) void same(void) { usleep(100); }
int main(void) {
    for (int i = 0; i < 10; i++) same();
    sleep(1);
    return 0;
}
";
    let directory = tempfile::tempdir().unwrap();
    let one = compile(directory.path(), "one", TWICE, FRAMES);
    let two = compile(directory.path(), "two", &format!("int pad(void) {{ return 1; }}\n{TWICE}"), FRAMES);
    let mut command = script("uprobe_latency.py");
    for file in [&one, &two] {
        command.args(["-e", &format!("function:same@{}", file.display())]);
    }
    let shell = format!("{} & {} & wait", one.display(), two.display());
    let out = text(command.args(["--exec", "sh", "-c", &shell]).output().unwrap());
    for file in [&one, &two] {
        assert!(out.contains(&format!("same ({}): 10 calls, ", file.display())), "{out}");
    }
}
