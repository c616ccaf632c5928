//! `perf script -s` on a recording of the same system calls, where perf is installed.

use std::{
    fs,
    process::{Command, Stdio},
};

use super::{cpu::reap_ns, floor, python, table::Table};

const CALLS: u64 = 300_000;

pub fn rows(table: &mut Table) {
    if !python::has("perf") {
        return table.row("perf script -s", &[], "ns", "skipped: perf is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let calls = table.effort.count(CALLS);
    let (data, script) = (dir.path().join("perf.data"), dir.path().join("count.py"));
    fs::write(&script, "n = 0\n\ndef raw_syscalls__sys_enter(event_name, context, common_cpu, common_secs, common_nsecs, common_pid, common_comm, common_callchain, id, args):\n    global n\n    n += 1\n").unwrap();
    let recorded = Command::new("perf")
        .args(["record", "-q", "-m", "16M", "-e", "raw_syscalls:sys_enter", "-o"])
        .arg(&data)
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .args(["--generate", &calls.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !recorded.is_ok_and(|status| status.success()) {
        return table.row("perf script -s", &[], "ns", "skipped: perf cannot record here");
    }
    let bare = python::bare(python::body("h1"));
    let (mut floor, mut perf) = (Vec::new(), Vec::new());
    for _ in 0..table.effort.runs().min(5) {
        floor.push(floor::calls(&bare, calls));
        let mut command = Command::new("perf");
        command.arg("script").arg("-i").arg(&data).arg("-s").arg(&script).stdout(Stdio::null()).stderr(Stdio::null());
        perf.push(reap_ns(command.spawn().unwrap()) as f64 / calls as f64);
    }
    table.compared(
        "perf script -s",
        &perf,
        ("floor h1", &floor),
        "ns",
        "named arguments, a counting handler, from a file",
    );
}
