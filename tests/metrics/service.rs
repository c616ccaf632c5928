//! The systemd unit of the Debian package: its capabilities are enough for the shipped scripts.

use std::{fs, process::Command, thread, time::Duration};

use super::{Serving, free_port};
use crate::harness::{
    machine::{Need, needs},
    run::tested_program,
};

const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/debian/perf-prof@.service");

/// Returns the capabilities of the service in the syntax of setpriv.
fn rights() -> String {
    let unit = fs::read_to_string(UNIT).unwrap();
    let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let rights = line.split(' ').map(|right| format!(",+{}", right.strip_prefix("CAP_").unwrap().to_lowercase()));
    format!("-all{}", rights.collect::<String>())
}

/// Starts a server with the capabilities of the service.
fn serve(script: &str, options: &[&str]) -> Serving {
    let port = free_port();
    let mut command = Command::new("setpriv");
    command.args(["--no-new-privs", "--inh-caps=-all", &format!("--bounding-set={}", rights())]).arg(tested_program());
    command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), script]).args(options);
    Serving::of(command, port)
}

#[test]
fn the_rights_of_the_service_are_enough() {
    needs([Need::Python, Need::Tracefs, Need::Bpf]);
    for (script, in_kernel, series) in [
        ("runqueue_metrics", "always", "perf_prof_runqueue_duration_seconds_count{"),
        ("failed_calls_metrics", "always", "perf_prof_failed_calls_total{"),
        ("block_metrics", "auto", "# TYPE perf_prof_block_size_bytes histogram"),
    ] {
        let mut serving = serve(script, &["--in-kernel", in_kernel]);
        thread::sleep(Duration::from_millis(500));
        let page = serving.fresh().text();
        assert!(page.contains(series), "{page}");
        serving.end();
    }
}
