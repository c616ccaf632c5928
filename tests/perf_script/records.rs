//! Records other than samples in `perf script` scripts: context switches, throttling, errors in hardware traces, and
//! counts of `perf stat record`.

use std::process::{Command, Output, Stdio};

use expect_test::expect;
use perf_prof_format::abi::*;

use crate::{
    harness::{
        machine::{Need, needs},
        made::{u32s, u64s},
        recording::{Folder, ours},
        run::{perf_prof, printed, said, stdout, with_patience},
    },
    replay::made::NATIVE,
};

fn run(records: &[Vec<u8>], script: &str) -> Output {
    needs([Need::Python]);
    let folder = Folder::new();
    let data = folder.write("made.data", &NATIVE.file(&records.concat()));
    let script = folder.write("s.py", script.as_bytes());
    let mut command = perf_prof(&["script", "-q", "-i"]);
    with_patience(command.arg(data).arg("-s").arg(script), 100).output().unwrap()
}

/// A script that prints the calls of all functions for records.
const PRINT: &str = "
def printer(name):
    def call(*args):
        print(name, *args)
    return call

for name in ('throttle', 'unthrottle', 'context_switch', 'auxtrace_error'):
    globals()[name] = printer(name)

def sys__e(*args):
    print('sample', args[4])
";

#[test]
fn records_are_passed_in_the_order_of_time() {
    let throttle = |kind, time| NATIVE.record(kind, 0, &[u64s(&[time, 50, 51]), NATIVE.trailer(time, 50)]);
    let out = PERF_RECORD_MISC_SWITCH_OUT | PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;
    let records = [
        NATIVE.sample(50, 30),
        NATIVE.switch(25),
        throttle(PERF_RECORD_THROTTLE, 35),
        throttle(PERF_RECORD_UNTHROTTLE, 36),
        NATIVE.record(PERF_RECORD_SWITCH_CPU_WIDE, out, &[u32s(&[3, 4]), NATIVE.trailer(37, 50)]),
        NATIVE.record(PERF_RECORD_SWITCH, PERF_RECORD_MISC_SWITCH_OUT, &[NATIVE.trailer(38, 50)]),
        NATIVE.sample(50, 40),
        NATIVE.aux_error(),
    ];
    expect![[r#"
        context_switch 25 1 7 8 7 8 -1 False False 0 -1
        sample 30
        throttle 35 50 51 1 7 8
        unthrottle 36 50 51 1 7 8
        context_switch 37 1 7 8 3 4 -1 True True 0 -1
        context_switch 38 1 7 8 -1 -1 -1 True False 0 -1
        sample 40
        auxtrace_error 1 5 0 7 8 4194320 9 Lost trace data 0 0 -1
    "#]]
    .assert_eq(&stdout(&run(&records, PRINT)));
}

#[test]
fn a_child_that_a_function_for_records_forks_does_not_continue_the_run() {
    let script = "import os, sys\ndef context_switch(*args):\n  pid = os.fork()\n  if pid: os.waitpid(pid, 0)\n  \
                  print('child' if pid == 0 else 'parent', flush=True)\ndef trace_end(): print('end')";
    let output = run(&[NATIVE.switch(25), NATIVE.switch(26)], script);
    assert_eq!(stdout(&output), "child\nparent\nchild\nparent\nend\n");
}

#[test]
fn counts_that_belong_to_nothing_are_told_once() {
    let stat = |id: u64| NATIVE.record(perf_data::PERF_RECORD_STAT, 0, &[u64s(&[id]), u32s(&[0, 0]), u64s(&[1, 2, 3])]);
    let records: Vec<Vec<u8>> = (900..1000).map(stat).chain([NATIVE.sample(50, 30)]).collect();
    let output = run(&records, PRINT);
    assert_eq!(stdout(&output), "sample 30\n");
    assert_eq!(
        said(&output),
        "perf-prof: warning: the recording is damaged: a count has the id 900, but no event has it\n"
    );
}

#[test]
fn the_counts_of_perf_stat_record_are_those_of_perf() {
    needs([Need::Perf, Need::Python]);
    let folder = Folder::new();
    let script = "def stat__task_clock(*args): print('clock', *args)\ndef stat__cs(*args): print('cs', *args)\n\
                  def stat__interval(time): print('interval', time)\ndef trace_end(): print('end')\n";
    let script = folder.write("s.py", script.as_bytes());
    let script = script.to_str().unwrap();
    let all: [&[&str]; 3] = [&[], &["-I", "50"], &["-a", "-A", "-I", "50"]];
    for (at, args) in all.into_iter().enumerate() {
        let path = folder.path(&at.to_string());
        let mut command = Command::new("perf");
        command.args(["stat", "record", "-e", "cs", "-o"]).arg(&path).args(args).args(["--", "sleep", "0.2"]);
        stdout(&command.stderr(Stdio::null()).output().unwrap());
        let output = Command::new("perf").args(["script", "-s", script, "-i"]).arg(&path).output().unwrap();
        let (perf, ours) = (printed(&output), ours(&["script", "-q", "-s", script], &path));
        assert_eq!(ours, perf, "{args:?}");
        assert!(ours.len() > 2 && ours[0].starts_with("cs "), "{ours:?}");
    }
}
