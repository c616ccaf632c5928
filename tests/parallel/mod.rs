//! Reads recordings in several processes: with `perf-prof parallel`, and with `perf-prof python --jobs`.

mod command;
mod jobs;
mod scripts;
mod several;

use std::{path::Path, process::Output};

use crate::harness::{
    machine::{Need, needs},
    recording::record,
    run::perf_prof,
    scripts::script,
};

/// Records context switches. The rings are large enough that no events are lost on a busy machine, because perf would
/// print a message about losses.
fn recording(folder: &Path) {
    needs([Need::Tracefs, Need::Perf]);
    let options = ["-a", "-m", "1024", "-e", "sched:sched_switch,sched:sched_wakeup"];
    let work = ["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 0.05; done"];
    record(&folder.join("perf.data"), &[&options[..], &work].concat());
}

fn parallel(folder: &Path, args: &[&str]) -> Output {
    perf_prof(&["parallel"]).args(args).current_dir(folder).output().unwrap()
}

/// Runs a shipped script by its first line in a folder.
fn run_script(folder: &Path, name: &str, args: &[&str]) -> Output {
    script(name).env("TZ", "UTC").args(args).current_dir(folder).output().unwrap()
}
