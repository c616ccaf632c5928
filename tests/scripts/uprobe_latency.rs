//! `uprobe_latency.py` beside programs that measure their own calls.

use std::{fs, path::Path, process::Command};

use crate::harness::{compile, on_made_up_events, row, script, skipped, text};

/// Measures its own calls, and says how many they were and how long they took: `NAME COUNT NANOSECONDS`.
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
    if skipped() || !Path::new("/sys/bus/event_source/devices/uprobe").exists() {
        return println!("skipped: no tracing or no uprobes");
    }
    let directory = tempfile::tempdir().unwrap();
    let [source, program] = ["m.c", "m"].map(|name| directory.path().join(name));
    fs::write(&source, MEASURED).unwrap();
    let Ok(status) = Command::new("gcc").args(["-O1", "-o"]).args([&program, &source]).status() else {
        return println!("skipped: no gcc");
    };
    assert!(status.success());
    let mut command = script("uprobe_latency.py");
    for function in ["nap", "nested"] {
        let file = program.display();
        command.args(["-e", &format!("uprobe:{function}@{file},uretprobe:{function}@{file}")]);
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
    // Its clock has the calls and what the probes take around them, the script what is within; neither less than a nap, but
    // for how differently the two clocks run.
    assert!((4_950_000..=own_time / own_count * 101 / 100).contains(&mean), "{out}");

    // Each of ten nested calls takes no longer than the outermost.
    let ((count, mean), (own_count, own_time)) = (seen("nested"), own("nests"));
    assert_eq!(count, own_count, "{out}");
    assert!(mean > 0 && mean * 30 <= own_time * 101 / 100, "{out}");
    assert!(!out.contains("not counted"), "{out}");
    // The rows of a histogram are its calls.
    let histogram = out.split("nested: ").nth(1).unwrap().lines().skip(2).take_while(|line| !line.is_empty());
    let rows = histogram.filter_map(|line| line.split_once(" : ")?.1.split_whitespace().next()?.parse::<u64>().ok());
    assert_eq!(rows.sum::<u64>(), 300, "{out}");
}

/// The kernel tells the returns of the 64 outermost calls alone; they were taken for those of the innermost.
#[test]
fn uprobe_latency_times_no_calls_whose_return_the_kernel_does_not_tell() {
    if skipped() || !Path::new("/sys/bus/event_source/devices/uprobe").exists() {
        return println!("skipped: no tracing or no uprobes");
    }
    // The first forty of a hundred take the nap.
    const DEEP: &str = "#include <unistd.h>
__attribute__((noinline)) int deep(int n) {
    if (n == 40) usleep(3000);
    int more = n < 100 ? deep(n + 1) : 0;
    __asm__ volatile(\"\");
    return more + 1;
}
int main(void) { for (int i = 0; i < 5; i++) deep(1); return 0; }
";
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(directory.path(), "deep", DEEP) else { return };
    let run = |min: &str| {
        let file = program.display();
        let mut command = script("uprobe_latency.py");
        command.args(["-e", &format!("uprobe:deep@{file},uretprobe:deep@{file}"), "--min", min, "--exec"]);
        text(command.arg(&program).output().unwrap())
    };
    for (min, calls) in [("0", "320"), ("2950", "200")] {
        let out = run(min);
        assert_eq!(row(&out, "deep:")[1], calls, "{out}");
        assert!(out.contains("(180 calls inside of 64 others are not timed"), "{out}");
    }
}

/// Each was held for ever: calls left by longjmp(), threads that ended in one.
#[test]
fn uprobe_latency_holds_no_more_than_it_says() {
    if skipped() {
        return;
    }
    let out = on_made_up_events(
        "uprobe_latency.py",
        "
def enter(us, tid, ip): script.__sample__(event(_time=us * 1000, _tid=tid, _pid=1 << 30, _event='uprobe:f', __probe_ip=ip))
def leave(us, tid, ip): script.__sample__(event(_time=us * 1000, _tid=tid, _pid=1 << 30, _event='uretprobe:f', __probe_func=ip))
for n in range(script.DEEPEST * 3): enter(n, 1, 16)
print(len(script.open_calls[1]) == script.DEEPEST)
enter(9000, 2, 32)
for n in range(100): enter(9001, 2, 16)
leave(9003, 2, 32)
print(2 in script.open_calls, [(calls.total, len(calls.histogram)) for calls in script.functions.values()])
for tid in range(script.MOST_THREADS * 2): enter(1, tid, 16)
print(len(script.open_calls) == script.MOST_THREADS)
",
    );
    assert!(out.starts_with("True\nFalse [(3000, 1)]\nTrue\n"), "{out}");
}

/// Nothing was said, and each call was held for ever.
#[test]
fn uprobe_latency_wants_the_return_of_each_entry() {
    if skipped() || !Path::new("/sys/bus/event_source/devices/uprobe").exists() {
        return println!("skipped: no tracing or no uprobes");
    }
    for (one, other) in [("uprobe", "uretprobe"), ("uretprobe", "uprobe")] {
        let out = script("uprobe_latency.py").args(["-e", &format!("{one}:getpid@libc"), "--exec", "true"]).output();
        let out = out.unwrap();
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{err}");
        assert!(err.contains(&format!("{one}:getpid is selected without {other}:getpid")), "{err}");
    }
}

/// They were one histogram.
#[test]
fn uprobe_latency_tells_functions_of_one_name_in_two_files_apart() {
    if skipped() || !Path::new("/sys/bus/event_source/devices/uprobe").exists() {
        return println!("skipped: no tracing or no uprobes");
    }
    const TWICE: &str = "#include <unistd.h>
__attribute__((noinline)) void same(void) { usleep(100); }
int main(void) {
    for (int i = 0; i < 10; i++) same();
    sleep(1);
    return 0;
}
";
    let directory = tempfile::tempdir().unwrap();
    let Some(one) = compile(directory.path(), "one", TWICE) else { return println!("skipped: no gcc") };
    let two = compile(directory.path(), "two", &format!("int pad(void) {{ return 1; }}\n{TWICE}")).unwrap();
    let mut command = script("uprobe_latency.py");
    for file in [&one, &two] {
        let file = file.display();
        command.args(["-e", &format!("uprobe:same@{file},uretprobe:same@{file}")]);
    }
    let shell = format!("{} & {} & wait", one.display(), two.display());
    let out = text(command.args(["--exec", "sh", "-c", &shell]).output().unwrap());
    for file in [&one, &two] {
        assert!(out.contains(&format!("same ({}): 10 calls, ", file.display())), "{out}");
    }
}
