//! What `perf-prof serve` answers, and how it starts and ends.

use std::{fs, io::Write, net::TcpStream, thread, time::Duration};

use super::{Serving, call, call_with, free_port, get, request};
use crate::harness::{
    counting::words,
    machine::{Need, needs},
    run::{perf_prof, said, stdout},
    script::Run,
};

const CALLS: &str = "-e=syscalls:sys_enter_getppid";

#[test]
fn counts_are_those_of_the_work_and_the_end_is_prompt() {
    needs([Need::Python, Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let script = "from perf_prof import Count\ncalls = syscalls__sys_enter_getppid = Count('_pid')\n";
    for where_added_up in ["--in-kernel=auto", "--in-kernel=never"] {
        let mut serving = Serving::start(folder.path(), script, &[CALLS, where_added_up]);
        let pid = call(1234);
        let page = serving.fresh();
        assert_eq!(page.status, 200);
        // On a busy machine, some may be lost.
        let counted = page.value(&format!("perf_prof_calls_total{{pid=\"{pid}\"}}"));
        let lost = page.value("perf_prof_lost_total");
        assert!(counted <= 1234.0 && counted + lost >= 1234.0, "{counted} and {lost} lost");
        assert!(page.text().contains("# HELP perf_prof_calls_total syscalls:sys_enter_getppid\n"), "{}", page.text());
        assert!(page.head.contains("Content-Type: text/plain; version=0.0.4"), "{}", page.head);
        // The next server at the same address starts its counts at 0.
        let (took, said) = serving.end();
        assert!(took < Duration::from_secs(3), "{took:?} {said}");
        assert!(said.contains(&format!("serving metrics at http://127.0.0.1:{}/metrics\n", serving.port)), "{said}");
        let again = Serving::at(serving.port, folder.path().join("metrics_of_test.py").to_str().unwrap(), &[CALLS]);
        assert!(!again.fresh().text().contains(&format!("pid=\"{pid}\"")));
    }
}

/// The tables in the kernel stay in use while they are read.
#[test]
fn scrapes_during_calls_have_each_call_once() {
    // On a fast machine, a million calls end before the second scrape.
    const CALLED: usize = 3_000_000;
    needs([Need::Python, Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let script = "from perf_prof import Count, Hist, Sum\ncalls = Count('_pid')\nsums = Sum('pid', by='_pid')\n\
                  spread = Hist('pid', by='_pid')\nsyscalls__sys_enter_getpgid = calls, sums, spread\n";
    let serving = Serving::start(folder.path(), script, &["-e=syscalls:sys_enter_getpgid"]);
    let calling = thread::spawn(|| call_with("getpgid(1)", CALLED));
    let (mut scrapes, mut before) = (0, 0.0);
    while !calling.is_finished() {
        let page = serving.fresh();
        let text = page.text();
        let series = text.lines().filter(|line| line.starts_with("perf_prof_calls_total{"));
        let calls: f64 = series.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum();
        assert!(calls >= before, "{}", page.text());
        (scrapes, before) = (scrapes + 1, calls);
    }
    let pid = calling.join().unwrap();
    let page = serving.fresh();
    // While another test reads a table, programs may miss events of this CPU. These count as lost.
    let lost = page.value("perf_prof_lost_total");
    for name in ["calls_total", "sums_pid_total", "spread_pid_count"] {
        let calls = page.value(&format!("perf_prof_{name}{{pid=\"{pid}\"}}"));
        assert!(calls <= CALLED as f64 && calls + lost >= CALLED as f64, "{calls} {name} and {lost} lost");
    }
    assert!(scrapes > 1, "{scrapes}");
}

#[test]
fn histograms_have_native_buckets_for_those_who_ask() {
    needs([Need::Python, Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let script = "from perf_prof import Hist, Sum\ntimes = Hist('duration', unit='us', by='_pid')\n\
                  spent = Sum('duration', by='_pid')\nsyscall = times, spent\n";
    let serving = Serving::start(folder.path(), script, &["-e", "syscall/name=getppid/"]);
    let pid = call(500);
    let page = serving.fresh();
    let series = |name: &str| format!("perf_prof_{name}{{pid=\"{pid}\"}}");
    assert_eq!(page.value(&series("times_duration_seconds_count")), 500.0);
    // Each table in the kernel measures times itself, so the sums differ a little.
    let (sum, spent) = (series("times_duration_seconds_sum"), series("spent_duration_seconds_total"));
    let ratio = page.value(&sum) / page.value(&spent);
    assert!((0.3..3.0).contains(&ratio), "{ratio}");
    assert_eq!(page.value(&format!("perf_prof_times_duration_seconds_bucket{{pid=\"{pid}\",le=\"+Inf\"}}")), 500.0);
    let accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    let native = get(serving.port, "/metrics", accept).unwrap();
    assert!(native.head.contains("proto=io.prometheus.client.MetricFamily; encoding=delimited"), "{}", native.head);
    let name = b"perf_prof_times_duration_seconds";
    assert!(native.body.windows(name.len()).any(|part| part == name));
}

#[test]
fn a_head_is_that_of_the_page_without_the_page() {
    needs([Need::Python, Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let script = "from perf_prof import Count\ncalls = syscalls__sys_enter_getppid = Count('_pid')\n";
    let serving = Serving::start(folder.path(), script, &[CALLS]);
    for (path, status) in [("/metrics", 200), ("/", 200), ("/nothing", 404)] {
        let head = request("HEAD", serving.port, path, "*/*").unwrap();
        let page = get(serving.port, path, "*/*").unwrap();
        assert_eq!((head.status, head.body.len(), page.status), (status, 0, status), "{path} {}", head.head);
        assert!(!page.body.is_empty());
    }
}

#[test]
fn a_counter_that_goes_back_is_told_once() {
    needs([Need::Python, Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let script = "from perf_prof import Count, Sum\ncalls = Count('_pid')\nresults = Sum('ret', by='_pid')\n\
                  syscall = calls, results\ndef __interval__():\n    calls.clear()\n";
    let mut serving = Serving::start(folder.path(), script, &["-e", "syscall/name=*access*/", "-i", "200ms"]);
    let pid = call_with("access('/does/not/exist', 0)", 50);
    serving.fresh();
    let page = serving.fresh();
    // The start of the interpreter makes such calls too.
    assert!(page.value(&format!("perf_prof_results_ret_total{{pid=\"{pid}\"}}")) <= -100.0);
    let (_, said) = serving.end();
    for told in ["warning: clear() of a table that is served", "warning: perf_prof_results_ret_total is negative"] {
        assert_eq!(said.matches(told).count(), 1, "{said}");
    }
}

#[test]
fn keys_beyond_the_limit_share_a_series_and_none_goes_back() {
    needs([Need::Python, Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let script = "from perf_prof import Count\ncalls = syscalls__sys_enter_getppid = Count('_pid', limit=1)\n";
    for place in ["--in-kernel=never", "--in-kernel=auto"] {
        let serving = Serving::start(folder.path(), script, &[CALLS, place]);
        call(10);
        let first = serving.fresh();
        let known = first.text().lines().find(|line| line.starts_with("perf_prof_calls_total{")).unwrap().to_owned();
        let (series, _) = known.rsplit_once(' ').unwrap();
        let before = first.value(series);
        (0..3).for_each(|_| assert!(call(100_000) != 0));
        let page = serving.fresh();
        let others = page.value("perf_prof_calls_total{pid=\"[others]\"}") + page.value("perf_prof_lost_total");
        assert!(others >= 300_000.0 && page.value(series) >= before, "{}", page.text());
        let all = page.text().lines().filter(|line| line.starts_with("perf_prof_calls_total{")).count();
        assert_eq!(all, 2, "{}", page.text());
    }
}

#[test]
fn stacks_are_profiles() {
    needs([Need::Python, Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let script = "from perf_prof import Stacks\ncalls = syscalls__sys_enter_getppid = Stacks()\n";
    let serving = Serving::start(folder.path(), script, &[CALLS, "-g"]);
    call(100);
    thread::sleep(Duration::from_millis(600));
    let profile = get(serving.port, "/debug/pprof/calls", "*/*").unwrap();
    assert_eq!((profile.status, &profile.body[..2]), (200, &[0x1f, 0x8b][..]));
    assert!(get(serving.port, "/", "*/*").unwrap().text().contains("/debug/pprof/calls"));
    assert_eq!(get(serving.port, "/debug/pprof/other", "*/*").unwrap().status, 404);
    // Stacks have too many keys for series. Losses are still reported.
    let page = serving.fresh();
    assert!(!page.text().contains("perf_prof_calls") && page.value("perf_prof_delivered_total") >= 100.0);
}

/// The waiting thread gets the GIL only if the other one gives it up.
#[test]
fn other_threads_of_a_script_run_while_a_profile_is_made() {
    needs([Need::Python, Need::Tracefs]);
    let script = "import sys, threading\n\
                  from perf_prof import Stacks\n\
                  stacks = syscalls__sys_enter_getpgid = Stacks()\n\
                  def __exit__():\n    \
                      sys.setswitchinterval(1000)\n    \
                      go, ran = threading.Semaphore(0), []\n    \
                      threading.Thread(target=lambda: (go.acquire(), ran.append(1))).start()\n    \
                      go.release()\n    \
                      for _ in range(1000):\n        \
                          stacks.pprof()\n        \
                          if ran: break\n    \
                      print(stacks.total, ran)\n";
    let run = Run::script(script).options(["-g"]).call_event().exec(words(20, 0, 0)).run();
    assert_eq!((&*run.stdout, run.status), ("20 [1]\n", 0), "{run:?}");
}

#[test]
fn slow_clients_do_not_keep_others_from_the_metrics() {
    needs([Need::Python, Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let script = "from perf_prof import Count\ncalls = syscalls__sys_enter_getppid = Count()\n";
    let mut serving = Serving::start(folder.path(), script, &[CALLS]);
    let slow: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(("127.0.0.1", serving.port)).unwrap()).collect();
    slow.iter().for_each(|mut stream| stream.write_all(b"GET /met").unwrap());
    assert_eq!(serving.scrape().unwrap().status, 200);
    let (took, said) = serving.end();
    assert!(took < Duration::from_secs(3), "{took:?} {said}");
}

/// `-p` is an option of perf-prof, unless `--` comes before it.
#[test]
fn arguments_after_two_dashes_belong_to_the_script() {
    needs([Need::Python, Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("x.py");
    let text = "#!/usr/bin/env -S perf-prof python -e syscalls:sys_enter_getppid --\n\
                import sys, perf_prof\nx = syscalls__sys_enter_getppid = perf_prof.Count()\nprint(sys.argv[1:])\n";
    fs::write(&script, text).unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    let check = |before: &[&str], behind: &[&str], expected: &str| {
        let mut command = perf_prof(&["serve", "--listen", &listen, "--duration", "10ms"]);
        let output = command.args(before).arg(&script).args(behind).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(stdout(&output), expected);
    };
    check(&["--"], &["-p", "5", "--exec", "x"], "['-p', '5', '--exec', 'x']\n");
    check(&[], &["a", "--", "-p", "5"], "['a', '--', '-p', '5']\n");
    check(&[CALLS, "--"], &["-p", "5"], "['-p', '5']\n");
    check(&[], &["a", "-b", "--exec", "true"], "['a', '-b']\n");
    check(&["--all-cpus"], &["-p", "1", "a"], "['a']\n");
}

#[test]
fn what_cannot_be_served_is_refused() {
    needs([Need::Python, Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("x.py");
    let check = |text: &str, options: &[&str], expected: &str| {
        fs::write(&script, text).unwrap();
        let mut command = perf_prof(&["serve", "--duration", "20s"]);
        let output = command.args(options).arg(&script).output().unwrap();
        assert!(!output.status.success() && said(&output).contains(expected), "{}", said(&output));
    };
    let counts = "from perf_prof import Count\nx = syscalls__sys_enter_getppid = Count()\n";
    check("def __sample__(event): pass\n", &[CALLS], "the script has no Count, Sum, Hist or Stacks among its globals");
    check(counts, &[CALLS, "--listen", "nowhere"], "cannot serve metrics at nowhere: 'nowhere' is no address");
    check(counts, &[], "no event selected");
    check(counts, &[CALLS, "--input", "perf.data"], "--listen cannot be combined with --input or `help`: it serves");
    let twice = "from perf_prof import Count\na_b = Count()\na_b_ = Count()\nsyscalls__sys_enter_getppid = a_b, a_b_\n";
    check(twice, &[CALLS], "two aggregators have the metric name perf_prof_a_b_total");
    let port = free_port();
    let _holder = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    check(counts, &[CALLS, "--listen", &format!("127.0.0.1:{port}")], "Address already in use");
    let unknown = perf_prof(&["serve", "runqeue_metrics"]).output().unwrap();
    let error = "there is no script `runqeue_metrics`; did you mean `runqueue_metrics`?";
    assert!(said(&unknown).contains(error), "{}", said(&unknown));
    let nothing = perf_prof(&["serve"]).output().unwrap();
    assert!(said(&nothing).contains("no script"), "{}", said(&nothing));
}
