//! Recordings that are made while BPF programs are loaded and unloaded, beside other recorders.

use std::process::{Child, Command, Stdio};

use crate::harness::{
    machine::{Need, needs},
    recorder::{CALL, await_events, perf},
    recording::Folder,
    run::{perf_prof, stdout, tested_program},
};

/// If several recorders get the record of a BPF program, the kernel makes the record longer for each, and leaves the
/// end empty. perf reads the id of an event there. perf must not stop at the first such record.
#[test]
fn perf_reads_the_records_of_programs_that_come_and_go_beside_other_recorders() {
    needs([Need::Tracefs, Need::Perf, Need::Bpf]);
    let folder = Folder::new();
    let recorder = |path: &_| -> Child {
        let mut command = Command::new(tested_program());
        // No call of any task fulfils this filter.
        let event = format!("{CALL}/common_pid == 0/");
        command.args(["record", "-q", "-a", "-e", &event, "--duration", "60s", "-o"]).arg(path);
        command.stdin(Stdio::null()).spawn().unwrap()
    };
    let paths = ["a.data", "b.data", "c.data"].map(|name| folder.path(name));
    let recorders = paths.each_ref().map(recorder);
    recorders.iter().zip(&paths).for_each(|(recorder, path)| await_events(recorder, path));
    let top = ["top", CALL, "-a", "-q", "--in-kernel", "always", "--duration", "50ms"];
    (0..3).for_each(|_| _ = stdout(&perf_prof(&top).output().unwrap()));
    for (mut recorder, path) in recorders.into_iter().zip(&paths) {
        let signal = Command::new("kill").args(["-INT", &recorder.id().to_string()]).status().unwrap();
        assert!(signal.success() && recorder.wait().unwrap().success());
        let shown = perf(path, &["script", "--show-bpf-events"]);
        // Records about existing BPF programs have no time.
        let timed = || shown.lines().filter(|line| !line.contains(" 0.000000: "));
        let of = |word: &str| timed().filter(|line| line.contains(word)).count();
        assert!(of("PERF_RECORD_KSYMBOL") >= 3 && of("PERF_RECORD_BPF_EVENT") >= 3, "{shown}");
    }
}
