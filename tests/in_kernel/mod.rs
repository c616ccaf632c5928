//! What BPF programs compute for perf-prof, compared with what is known about the traced program.

mod beside;
mod calls;
mod chains;
pub mod interrupts;
mod pairs;
mod paths;
mod readings;
mod refused;
pub mod scheduler;
mod selections;
mod spans;
mod strings;
mod tables;
mod verifier;
pub mod work;

use std::process::Output;

use serde_json::Value as Json;

use crate::harness::{
    counting::objects,
    machine::{Need, needs, skip},
    run::{PATIENCE, perf_prof, stdout, with_patience},
};

/// Ends the test as ignored if the kernel cannot add up events on this machine.
fn needs_bpf() {
    needs([Need::Bpf, Need::Tracefs]);
    let checks: Vec<Json> = serde_json::from_slice(&perf_prof(&["doctor", "--json"]).output().unwrap().stdout).unwrap();
    let check = checks.iter().find(|check| check["name"] == "tables in the kernel").unwrap();
    if check["state"] != "ok" {
        skip(Need::Bpf, &check["detail"]);
    }
}

/// Runs a command of perf-prof with these arguments on a program. `when` is the value of `--in-kernel`.
fn run(when: &str, args: &[&str], program: &[String]) -> Output {
    let mut command = perf_prof(args);
    with_patience(command.args(["--in-kernel", when, "--"]).args(program), PATIENCE).output().unwrap()
}

/// Returns the last object that a command prints with `--json` for a program.
fn json(when: &str, args: &[&str], program: &[String]) -> Json {
    objects(&stdout(&run(when, &[args, &["--json"]].concat(), program))).pop().unwrap()
}

/// Returns the counts of the rows of an object.
fn counts(object: &Json) -> Vec<u64> {
    object["rows"].as_array().unwrap().iter().map(|row| row["count"].as_u64().unwrap()).collect()
}
