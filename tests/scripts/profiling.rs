//! Tests `profile.py` and `faults.py` on programs with known shares.

use std::{fs, path::Path};

use crate::{
    harness::compile::FRAMES,
    harness::{
        compile::compile,
        machine::{Need, needs, needs_samples},
        scripts::{row, script, text},
    },
};

/// Returns the words before a function's name in a table.
#[track_caller]
fn counts_of<'a>(table: &'a str, function: &str) -> Vec<&'a str> {
    let row = table.lines().find_map(|line| line.strip_suffix(function)?.strip_suffix("  "));
    row.unwrap_or_else(|| panic!("no row {function} in\n{table}")).split_whitespace().collect()
}

/// Converts `70.1%` to tenths of a percent.
fn tenths(share: &str) -> i32 {
    share.strip_suffix('%').unwrap().replace('.', "").parse().unwrap()
}

/// A program that spends 70 % of its CPU time in one function and 30 % in another, by its own measurement.
const SEVENTY_THIRTY: &str = r#"
#include <time.h>
static long cpu_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
__attribute__((noinline)) void burn(long ms) {
    for (long end = cpu_ms() + ms; cpu_ms() < end;)
        for (int i = 0; i < 200000; i++) __asm__ volatile("");
}
__attribute__((noinline)) void seventy(void) { burn(70); }
__attribute__((noinline)) void thirty(void) { burn(30); }
int main(void) { for (int i = 0; i < 10; i++) { seventy(); thirty(); } return 0; }
"#;

#[test]
fn profile_shares_time_out_to_functions() {
    needs([Need::Tracefs]);
    needs_samples(997);
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "hot", SEVENTY_THIRTY, FRAMES);
    let folded = directory.path().join("hot.folded");
    let options = ["--by-pid", "--sort", "total", "--flame", folded.to_str().unwrap(), "--exec"];
    let out = text(script("profile.py").args(options).arg(&program).output().unwrap());
    let shares = |function: &str| {
        let words = counts_of(&out, function);
        let pid = words[0].parse::<u32>().unwrap();
        (pid, tenths(words[1]), tenths(words[2]), words[3].parse::<u64>().unwrap())
    };
    let (burn, main) = (shares("burn (hot)"), shares("main (hot)"));
    let (seventy, thirty) = (shares("seventy (hot)"), shares("thirty (hot)"));
    assert!(main.0 > 0 && [burn.0, seventy.0, thirty.0] == [main.0; 3], "{out}");
    // All time is below `main`, and most of it in the loop of `burn`. The rest is in interrupts for other work of the
    // machine.
    assert!(main.2 > 950 && main.1 < 20 && burn.1 > 600 && seventy.1 < 20, "{out}");
    assert!(seventy.2.abs_diff(700) < 30 && thirty.2.abs_diff(300) < 30, "{out}");
    assert!((seventy.2 + thirty.2).abs_diff(burn.2) <= 1, "{out}");

    // The graph contains each sample exactly once.
    let lines = fs::read_to_string(&folded).unwrap();
    let stacks: Vec<(&str, u64)> = lines
        .lines()
        .map(|line| line.rsplit_once(' ').map(|(stack, n)| (stack, n.parse().unwrap())).unwrap())
        .collect();
    let in_burn: u64 = stacks.iter().filter(|(stack, _)| stack.ends_with(";burn")).map(|(_, count)| count).sum();
    assert!(
        stacks.iter().any(|(stack, _)| stack.starts_with("hot;") && stack.ends_with(";main;seventy;burn")),
        "{lines}"
    );
    assert_eq!(in_burn, burn.3, "{out}\n{lines}");
    let all: u64 = stacks.iter().map(|(_, count)| count).sum();
    assert!(out.contains(&format!("\n{all} samples in ")), "{out}\n{lines}");
    assert!(out.ends_with(&format!(": {all} samples in {} stacks\n", stacks.len())), "{out}");
}

const PAGES: u64 = 3000;

/// A program that touches new pages in one function, and pages of a file in another. It prints how many faults the
/// kernel counted.
const TOUCH: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
// Who asks for its frame has one, also where it calls nothing.
#define FRAME __asm__ volatile("" : : "r"(__builtin_frame_address(0)))
__attribute__((noinline)) void touch_new(volatile char *at, long pages) {
    FRAME;
    for (long page = 0; page < pages; page++) at[page * 4096] = 1;
}
__attribute__((noinline)) void touch_file(volatile char *at, long pages) {
    FRAME;
    for (long page = 0; page < pages; page++) (void)at[page * 4096];
}
int main(int argc, char **argv) {
    long pages = atol(argv[1]);
    int file = open(argv[2], O_RDONLY);
    struct rusage used[3];
    char *fresh = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *mapped = mmap(0, pages * 4096, PROT_READ, MAP_SHARED, file, 0);
    // Huge pages take one fault for many.
    madvise(fresh, pages * 4096, MADV_NOHUGEPAGE);
    // The file's pages are not in memory, and the kernel does not read ahead.
    fsync(file);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    madvise(mapped, pages * 4096, MADV_RANDOM);
    getrusage(RUSAGE_SELF, &used[0]);
    touch_new(fresh, pages);
    getrusage(RUSAGE_SELF, &used[1]);
    touch_file(mapped, pages);
    getrusage(RUSAGE_SELF, &used[2]);
    printf("\npid %d\n", getpid());
    for (int i = 0; i < 2; i++)
        printf("%s %ld %ld\n", i ? "file" : "new", used[i + 1].ru_minflt - used[i].ru_minflt,
               used[i + 1].ru_majflt - used[i].ru_majflt);
    return 0;
}
"#;

/// Returns what `faults.py` prints for the program.
fn faults(program: &Path, options: &[&str]) -> String {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("faults-{}", std::process::id()));
    fs::write(&file, vec![1; PAGES as usize * 4096]).unwrap();
    let mut command = script("faults.py");
    command.args(options).arg("--exec").arg(program).arg(PAGES.to_string()).arg(&file);
    let output = command.output().unwrap();
    fs::remove_file(&file).unwrap();
    text(output)
}

#[test]
fn faults_counts_each_page_that_a_function_touches() {
    needs([Need::Tracefs]);
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "touch", TOUCH, FRAMES);
    let all = PAGES.to_string();
    let folded = directory.path().join("faults.folded");

    let out = faults(&program, &["--top", "100", "--flame", folded.to_str().unwrap()]);
    assert_eq!(row(&out, "new"), ["new", &all, "0"], "{out}");
    assert_eq!(counts_of(&out, "touch_new (touch)"), [&all, "0", &all], "{out}");
    let (minor, major) = (row(&out, "file")[1], row(&out, "file")[2]);
    assert_eq!(counts_of(&out, "touch_file (touch)")[..2], [minor, major], "{out}");
    if major != all {
        println!("not tested: major faults, this file system has {major} of {PAGES}");
    }
    let main: u64 = counts_of(&out, "main (touch)")[2].parse().unwrap();
    assert!(main >= PAGES + minor.parse::<u64>().unwrap() + major.parse::<u64>().unwrap(), "{out}");
    let lines = fs::read_to_string(&folded).unwrap();
    let line = lines.lines().find(|line| line.contains(";main;touch_new ")).unwrap();
    assert!(line.starts_with("touch;") && line.ends_with(&format!(" {all}")), "{lines}");

    let out = faults(&program, &["--by", "stack", "--sort", "minor", "--top", "1"]);
    let (counts, stack) = out.lines().find_map(|line| line.split_once("  touch_new (touch)")).expect(&out);
    assert_eq!((counts.split_whitespace().collect(), stack), (vec![all.as_str(), "0"], ""), "{out}");
    assert!(out.contains(&format!("touch_new (touch)\n{:21}main (touch)\n", "")), "{out}");

    let out = faults(&program, &["--by", "process", "--sort", "major", "--major"]);
    let pid = row(&out, "pid")[1];
    let process: Vec<&str> = out.lines().rfind(|line| line.ends_with("  touch")).unwrap().split_whitespace().collect();
    assert!(process[0] == "0" && process[2..] == [pid, "touch"], "{out}");
    assert!(process[1].parse::<u64>().unwrap() >= row(&out, "file")[2].parse().unwrap(), "{out}");
}
