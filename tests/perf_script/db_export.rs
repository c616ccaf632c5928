//! Database export: scripts of `perf script` that receive the rows of tables.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::harness::{
    compile::{FRAMES, compile},
    machine::{Need, needs},
    older_perf,
    recording::{Folder, ours, perf, record},
    run::{perf_prof, printed, said},
};

/// A script that prints the rows of all tables, and the calls for tracepoints.
const PRINT: &str = "
import sys

perf_db_export_mode = True
perf_db_export_callchains = 'callchains' in sys.argv

def printer(name):
    def call(*args):
        print(name, *map(repr, args))
    return call

for table in ('evsel', 'machine', 'thread', 'comm', 'comm_thread', 'dso', 'symbol', 'branch_type', 'sample', 'call_path',
              'call_return', 'context_switch'):
    globals()[table + '_table'] = printer(table)
for name in ('trace_begin', 'trace_end', 'process_event', 'context_switch'):
    globals()[name] = printer(name)

def trace_unhandled(event_name, context, fields):
    print(event_name, fields['common_comm'])
";

/// A program with threads and a child process with comms of their own. It calls functions in all of them, and faults at
/// addresses without a symbol.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
volatile long sum;
__attribute__((noinline)) void leaf(long i) { for (long n = 0; n < 50000; n++) sum += n ^ i; }
__attribute__((noinline)) void middle(long i) { leaf(i); sum++; }
__attribute__((noinline)) void top(long i) { middle(i); sum++; }
static void work(void) { for (long i = 0; i < 200; i++) top(i); usleep(100); }
static void *thread(void *name) { prctl(PR_SET_NAME, name); work(); return 0; }
int main(int argc, char **argv) {
    pthread_t threads[2];
    pthread_create(&threads[0], 0, thread, "first");
    pthread_create(&threads[1], 0, thread, "second");
    if (fork() == 0) { prctl(PR_SET_NAME, "child \"of\""); work(); _exit(0); }
    volatile char *memory = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int at = 0; at < 1 << 16; at += 4096) memory[at] = 1;
    work();
    pthread_join(threads[0], 0);
    pthread_join(threads[1], 0);
    wait(0);
    if (argc == 1) execl(argv[0], "again", "x", (char *)0);
    return 0;
}
"#;

/// Records the program, which is linked statically. So no sample is in a C library that calls it, where perf names
/// addresses by the last symbol before them.
fn recorded(folder: &Folder, options: &[&str]) -> PathBuf {
    let root = folder.path("");
    let program = compile(&root, "worker", PROGRAM, &[FRAMES, &["-static", "-pthread"]].concat());
    let data = folder.path("perf.data");
    record(&data, &[options, &["--", program.to_str().unwrap()]].concat());
    data
}

/// Returns what the script prints in perf and in perf-prof.
fn both(folder: &Folder, data: &Path, args: &[&str]) -> [Vec<String>; 2] {
    let script = folder.write("s.py", PRINT.as_bytes());
    let run = ["script", "-s", script.to_str().unwrap()];
    // The arguments of the script come last.
    let file = ["-i", data.to_str().unwrap()];
    let whole = [&run[..], &file, args].concat();
    let mut ours = perf_prof(older_perf::script_words());
    ours.args(&whole[1..]);
    let [perf, ours] = [perf_with(&whole), printed(&ours.output().unwrap())].map(|lines| lines.join("\n"));
    let (perf, ours) = older_perf::comparable_samples(perf, ours);
    [perf, ours].map(|text| text.lines().map(str::to_owned).collect())
}

fn perf_with(args: &[&str]) -> Vec<String> {
    printed(&Command::new("perf").args(args).output().unwrap())
}

fn rows(lines: &[String], table: &str) -> usize {
    lines.iter().filter(|line| line.split(' ').next() == Some(table)).count()
}

#[test]
fn the_rows_of_samples_with_call_chains_are_those_of_perf() {
    needs([Need::Perf, Need::Python, Need::Compilers]);
    let folder = Folder::new();
    let data = recorded(&folder, &["-g", "-e", "cpu-clock", "-c", "500000"]);
    for args in [&[][..], &["callchains"]] {
        let [perf, ours] = both(&folder, &data, args);
        assert_eq!(perf, ours);
        assert!(rows(&ours, "sample") > 10 && rows(&ours, "thread") > 4 && rows(&ours, "comm") > 6, "{ours:#?}");
        assert_eq!(rows(&ours, "call_path") > 10, !args.is_empty());
    }
}

#[test]
fn the_rows_of_context_switches_are_those_of_perf_and_tracepoints_are_not_exported() {
    needs([Need::Perf, Need::Python, Need::Compilers, Need::Tracefs]);
    let folder = Folder::new();
    let options = ["--switch-events", "-e", "cpu-clock", "-c", "1000000", "-e", "sched:sched_process_fork"];
    let data = recorded(&folder, &options);
    let [perf, ours] = both(&folder, &data, &[]);
    assert_eq!(perf, ours);
    assert!(rows(&ours, "context_switch") > 4 && rows(&ours, "sample") > 4, "{ours:#?}");
    assert_eq!(rows(&ours, "sched__sched_process_fork"), 6);
    assert_eq!(rows(&ours, "process_event"), 0);
}

#[test]
fn the_address_of_a_fault_of_an_instruction_is_in_the_place_of_the_instruction() {
    needs([Need::Perf, Need::Python, Need::Compilers]);
    let folder = Folder::new();
    let data = recorded(&folder, &["-d", "-c", "1", "-e", "page-faults:u"]);
    let mut of_instructions = 0;
    for lines in both(&folder, &data, &[]) {
        for line in lines.iter().filter(|line| line.starts_with("sample ")) {
            let row: Vec<&str> = line.split(' ').collect();
            let (place, ip, to, to_ip) = (&row[6..9], row[9], &row[12..15], row[15]);
            if ip == to_ip {
                assert_eq!(place, to, "{line}");
                of_instructions += 1;
            }
        }
    }
    assert!(of_instructions > 4);
}

#[test]
fn a_script_can_request_the_export_in_trace_begin_and_have_only_some_tables() {
    needs([Need::Perf, Need::Python, Need::Compilers]);
    let folder = Folder::new();
    let data = recorded(&folder, &["-e", "task-clock", "-c", "5000000"]);
    let script = "
def trace_begin():
    global perf_db_export_mode
    perf_db_export_mode = True

def evsel_table(number, name):
    print(number, name)

def sample_table(number, evsel, machine, thread, comm, dso, *rest):
    if number == 1:
        print(evsel, machine, thread, comm, dso, len(rest))

def process_event(sample):
    print('not called')
";
    let script = folder.write("s.py", script.as_bytes());
    let args = ["script", "-s", script.to_str().unwrap()];
    let ours = ours(&args, &data);
    let mut of_perf = perf(&args, &data);
    assert_eq!((ours.len(), &*ours[0]), (2, "1 task-clock"));
    assert!(ours[1].ends_with(" 22"), "{ours:?}");
    if older_perf::is_installed() {
        of_perf[1] = of_perf[1].replace(" 19", " 22");
    }
    assert_eq!(of_perf, ours);
}

#[test]
fn an_exception_in_the_function_of_a_table_is_reported() {
    needs([Need::Perf, Need::Python, Need::Compilers]);
    let folder = Folder::new();
    let data = recorded(&folder, &["-e", "task-clock", "-c", "5000000"]);
    let run = |text: &str| {
        let script = folder.write("s.py", format!("perf_db_export_mode = True\n{text}").as_bytes());
        perf_prof(&["script", "-s", script.to_str().unwrap(), "-i", data.to_str().unwrap()]).output().unwrap()
    };
    let at_start = run("def branch_type_table(kind, name): raise ValueError(name)\n");
    assert_eq!(at_start.status.code(), Some(1), "{}", said(&at_start));
    assert!(said(&at_start).contains("ValueError: no branch"), "{}", said(&at_start));
    let later = run("def comm_table(*row): raise ValueError('no row')\ndef trace_end(): print('end')\n");
    assert_eq!((later.status.code(), &*later.stdout), (Some(1), &b"end\n"[..]), "{}", said(&later));
    assert!(said(&later).contains("ValueError: no row"), "{}", said(&later));
}
