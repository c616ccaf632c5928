//! A real Prometheus scrapes `perf-prof serve`.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{SOON, Serving, call, free_port, get};
use crate::harness::machine::{Need, needs};

struct Prometheus {
    child: Child,
    port: u16,
}

impl Prometheus {
    fn start(folder: &Path, target: u16) -> Prometheus {
        let config = folder.join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: kernel\n  static_configs: [{{targets: \
             ['127.0.0.1:{target}']}}]\n"
        );
        fs::write(&config, text).unwrap();
        let port = free_port();
        let mut command = Command::new("prometheus");
        command.arg("--config.file").arg(&config).arg("--storage.tsdb.path").arg(folder.join("data"));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}")).arg("--enable-feature=native-histograms");
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Prometheus { child, port }
    }

    /// Returns the value of a query with one result.
    fn query(&self, query: &str) -> Option<f64> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = get(self.port, &format!("/api/v1/query?query={escaped}"), "*/*").filter(|of| of.status == 200)?;
        // The answer may consist of chunks, whose lengths are on lines of their own.
        let text = answer.text();
        let json: Value = serde_json::from_str(&text[text.find('{')?..=text.rfind('}')?]).ok()?;
        json["data"]["result"].get(0)?["value"][1].as_str()?.parse().ok()
    }

    /// Waits until the result of a query has this value.
    #[track_caller]
    fn check(&self, query: &str, expected: f64) {
        let begin = Instant::now();
        while self.query(query) != Some(expected) {
            assert!(begin.elapsed() < SOON, "{query} is {:?}, not {expected}", self.query(query));
            thread::sleep(Duration::from_millis(300));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Naps last longer than the ranges, whose unit is not that of the values.
#[test]
fn prometheus_gets_histograms_with_values_above_their_ranges() {
    needs([Need::Python, Need::Tracefs, Need::Prometheus]);
    let folder = tempfile::tempdir().unwrap();
    let script =
        "from perf_prof import Hist\nnaps = syscall = Hist('duration', by='_pid', unit='ms', linear=(0, 50, 5))\n";
    let serving = Serving::start(folder.path(), script, &["-e", "syscall/name=clock_nanosleep/"]);
    let prometheus = Prometheus::start(folder.path(), serving.port);
    let work = "import os, time\nfor nap in [0.002, 0.022, 0.06]: time.sleep(nap)\nprint(os.getpid())";
    let output = Command::new("/usr/bin/python3").args(["-S", "-c", work]).output().unwrap();
    let pid = String::from_utf8(output.stdout).unwrap();
    let naps = format!("perf_prof_naps_duration_seconds{{pid=\"{}\"}}", pid.trim());
    prometheus.check(&format!("histogram_count({naps})"), 3.0);
    prometheus.check("up{job=\"kernel\"}", 1.0);
}

#[test]
fn prometheus_gets_counts_and_native_histograms() {
    needs([Need::Python, Need::Tracefs, Need::Prometheus]);
    let folder = tempfile::tempdir().unwrap();
    let script = "from perf_prof import Count, Hist\ncalls = Count('_pid', 'name')\n\
                  times = Hist('duration', unit='s', by='_pid')\nsyscall = calls, times\n";
    let serving = Serving::start(folder.path(), script, &["-e", "syscall/name=getppid/"]);
    let prometheus = Prometheus::start(folder.path(), serving.port);
    prometheus.check("up{job=\"kernel\"}", 1.0);
    let pid = call(4321);
    prometheus.check(&format!("perf_prof_calls_total{{pid=\"{pid}\",name=\"getppid\"}}"), 4321.0);
    prometheus.check("perf_prof_lost_total", 0.0);
    let times = format!("perf_prof_times_duration_seconds{{pid=\"{pid}\"}}");
    prometheus.check(&format!("histogram_count({times})"), 4321.0);
    // The median of the native histogram is near the median of the exact times.
    let (median, mean) = (format!("histogram_quantile(0.5, {times})"), format!("histogram_sum({times}) / 4321"));
    let (median, mean) = (prometheus.query(&median).unwrap(), prometheus.query(&mean).unwrap());
    assert!(median > 0.0 && median < 4.0 * mean, "{median} {mean}");
}
