//! Compares the cgroups that perf-prof reads from recordings of perf-prof and perf with what perf prints.

use std::{collections::BTreeMap, fs, path::Path};

use expect_test::expect;

use super::Groups;
use crate::harness::{
    awake::Awake,
    cgroup::Cgroup,
    counting::objects,
    machine::{Need, needs},
    recorder,
    recording::{Folder, python, record},
    run::{perf_prof, said, stdout},
    script::{CALL, workload},
    scripts::{script, text},
};

/// Returns the number of samples of each of these cgroups in perf's report.
fn by_perf(path: &Path, groups: &Groups) -> BTreeMap<String, u64> {
    let report = recorder::perf(path, &["report", "--stdio", "-s", "cgroup", "-n"]);
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, count, path] => Some((groups.named(path), count.parse().ok()?)),
            _ => None,
        }
    };
    report
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(row)
        .filter(|(path, _)| path.starts_with("/O"))
        .collect()
}

/// Returns the number of events of each of these cgroups in `top`.
fn by_top(path: &Path, groups: &Groups, options: &[&str]) -> BTreeMap<String, u64> {
    let output = perf_prof(&["top", "--by", "cgroup", "--json", "--input"]).arg(path).args(options).output().unwrap();
    let top: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let row = |row: &serde_json::Value| (groups.named(row["cgroup"].as_str().unwrap()), row["count"].as_u64().unwrap());
    top["rows"].as_array().unwrap().iter().map(row).filter(|(path, _)| path.starts_with("/O")).collect()
}

/// A recording contains the names of cgroups that exist. Recordings of perf and of perf-prof give the same result.
#[test]
fn samples_have_the_cgroups_that_perf_shows() {
    needs([Need::Tracefs, Need::Perf]);
    let (groups, folder) = (Groups::new(), Folder::new());
    let [own, of_perf] = ["own.data", "perf.data"].map(|name| folder.path(name));
    let command = groups.calls();
    let words: Vec<&str> =
        ["-e", CALL, "-a", "--all-cgroups", "--"].into_iter().chain(command.iter().map(String::as_str)).collect();
    record(&of_perf, &words);
    let status = perf_prof(&["record", "-q", "-o"]).arg(&own).args(&words).status().unwrap();
    assert!(status.success());
    let expected: BTreeMap<String, u64> =
        [("/OUTER", 30), ("/OUTER/inner", 20), ("/OTHER", 7)].map(|(path, count)| (path.to_owned(), count)).into();
    for path in [&own, &of_perf] {
        assert_eq!(by_perf(path, &groups), expected);
        assert_eq!(by_top(path, &groups, &[]), expected);
        let only = ["--cgroup", groups.outer.name.as_str()];
        let of_outer: BTreeMap<_, _> = expected.clone().into_iter().filter(|(path, _)| path != "/OTHER").collect();
        assert_eq!(by_top(path, &groups, &only), of_outer);
        let glob = format!("{}/*,/{}", groups.outer.name, groups.other.name);
        let report = perf_prof(&["report", "--sort", "cgroup", "--json", "--cgroups", &glob, "-i"]).arg(path).output();
        let report: serde_json::Value = serde_json::from_str(&stdout(&report.unwrap())).unwrap();
        let line = |line: &serde_json::Value| {
            (groups.named(line["cgroup"].as_str().unwrap()), line["samples"].as_u64().unwrap())
        };
        let lines: BTreeMap<_, _> = report["events"][0]["lines"].as_array().unwrap().iter().map(line).collect();
        let of_glob: BTreeMap<_, _> = expected.clone().into_iter().filter(|(path, _)| path != "/OUTER").collect();
        assert_eq!(lines, of_glob);
    }
}

#[test]
fn lines_tables_and_columns_have_the_path_of_the_cgroup() {
    needs([Need::Tracefs, Need::Python]);
    let (groups, folder) = (Groups::new(), Folder::new());
    let path = folder.path("own.data");
    let command = groups.calls();
    let recorded = perf_prof(&["record", "-q", "-e", CALL, "-a", "--all-cgroups", "-o"])
        .arg(&path)
        .arg("--")
        .args(&command)
        .status();
    assert!(recorded.unwrap().success());
    let other = ["--cgroups", groups.other.name.as_str()];
    let of = |words: &[&str]| {
        let output = perf_prof(words).arg(&path).args(other).output().unwrap();
        groups.named(&stdout(&output)).lines().next_back().unwrap().to_owned()
    };
    expect!["syscalls:sys_enter_getpgid:  /OTHER"].assert_eq(of(&["script", "-F", "event,cgroup", "-i"]).trim_start());
    let csv = of(&["export", "--format", "csv", "-o", "-", "-i"]);
    assert_eq!(csv.split(',').nth(6), Some("/OTHER"), "{csv}");
    let json = of(&["export", "--format", "ndjson", "-o", "-", "-i"]);
    assert!(json.contains("\"_cgroup\":\"/OTHER\""), "{json}");
    let json = of(&["trace", "--json", "--input"]);
    assert!(json.contains("\"_cgroup\":\"/OTHER\""), "{json}");
    let table = "
import sys, perf_prof
counts = perf_prof.Count('_cgroup', '_comm')
def __sample__(e): counts.add(e)
def __exit__(): print(sorted((cgroup, count) for (cgroup, _), count in counts.items()))
";
    let script = folder.write("t.py", table.as_bytes());
    let input = path.to_str().unwrap();
    let output = python(&["-q", "--input", input, "--jobs", "1", script.to_str().unwrap()]);
    let text = groups.named(&stdout(&output));
    for row in ["('/OTHER', 7)", "('/OUTER', 30)", "('/OUTER/inner', 20)"] {
        assert!(text.contains(row), "{text}");
    }
}

/// perf records no event when a task moves, but the samples of a task show its cgroup.
#[test]
fn spans_and_scripts_select_the_cgroups_of_a_recording_of_perf() {
    needs([Need::Tracefs, Need::Perf, Need::Python]);
    let _awake = Awake::new();
    let (own, other, folder) = (Cgroup::new(), Cgroup::new(), Folder::new());
    let path = folder.path("perf.data");
    let quoted = |words: Vec<String>| words.iter().map(|word| format!("'{word}' ")).collect::<String>();
    let naps = |comm: &str| quoted(workload(&format!("comm {comm} {}", "sleep-ms 20 ".repeat(5))));
    let in_cgroup = |cgroup: &Cgroup, comm| format!("(echo 0 > {}; exec {}) &\n", cgroup.procs(), naps(comm));
    let line = in_cgroup(&own, "in-own") + &in_cgroup(&other, "in-other") + "wait";
    let events = "sched:sched_switch,sched:sched_wakeup,sched:sched_wakeup_new,sched:sched_waking";
    record(&path, &["-e", events, "-a", "--all-cgroups", "--", "sh", "-c", &line]);
    let comms = |cgroup: &Cgroup| {
        let words = ["top", "offcpu", "--by", "comm", "--json", "--cgroups", &cgroup.name, "--input"];
        let output = perf_prof(&words).arg(&path).output().unwrap();
        let top: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        let of_keys = top["rows"].as_array().unwrap().clone();
        let row = |row: &serde_json::Value| (row["comm"].as_str().unwrap().to_owned(), row["count"].as_u64().unwrap());
        of_keys.iter().map(row).filter(|(comm, _)| comm.starts_with("in-")).collect::<BTreeMap<_, _>>()
    };
    for (cgroup, comm) in [(&own, "in-own"), (&other, "in-other")] {
        let found = comms(cgroup);
        // The kernel may hide naps that end in an idle task.
        assert!(found.len() == 1 && found[comm] >= 2, "{found:?}");
        let export = ["export", "-q", "-o", "-", "--format", "ndjson", "-e", "offcpu", "--cgroups", &cgroup.name, "-i"];
        let spans = objects(&stdout(&perf_prof(&export).arg(&path).output().unwrap()));
        let count = |name: &str| spans.iter().filter(|span| span["comm"] == name).count() as u64;
        assert_eq!((count(comm), count("in-own") + count("in-other")), (found[comm], found[comm]), "{spans:?}");
    }
    let input = ["--input", path.to_str().unwrap(), "--cgroups", own.name.as_str()];
    let waits = text(script("runqlat.py").args(input).output().unwrap());
    assert!(waits.contains("in-own") && !waits.contains("in-other"), "{waits}");
    let off = text(script("offcpu.py").args(input).args(["--comm", "in-own"]).output().unwrap());
    let of_other = text(script("offcpu.py").args(input).args(["--comm", "in-other"]).output().unwrap());
    assert!(off.contains("in-own") && !of_other.contains("in-other"), "{off}\n{of_other}");
}

#[test]
fn a_recording_without_cgroups_or_without_this_one_says_so() {
    needs([Need::Tracefs]);
    let (groups, folder) = (Groups::new(), Folder::new());
    let [with, without] = ["with.data", "without.data"].map(|name| folder.path(name));
    let work = workload("calls 3");
    for (path, option) in [(&with, "--all-cgroups"), (&without, "-q")] {
        let status = perf_prof(&["record", "-q", option, "-e", CALL, "-o"]).arg(path).arg("--").args(&work).status();
        assert!(status.unwrap().success());
    }
    let failed = |words: &[&str], path: &Path| {
        let output = perf_prof(words).arg(path).output().unwrap();
        said(&output).replace(folder.path("").to_str().unwrap(), "").lines().next().unwrap().to_owned()
    };
    let name = groups.other.name.as_str();
    expect![
        "perf-prof: --cgroups: without.data does not contain the cgroups of its samples; record with --all-cgroups"
    ]
    .assert_eq(&failed(&["report", "--cgroups", name, "-i"], &without));
    expect![
        "perf-prof: --sort cgroup: without.data does not contain the cgroups of its samples; record with --all-cgroups"
    ]
    .assert_eq(&failed(&["report", "--sort", "cgroup", "-i"], &without));
    let by = failed(&["top", "--by", "cgroup", "--input"], &without);
    assert!(by.contains("have no cgroup, which `_cgroup` needs: use --all-cgroups"), "{by}");
    let no_sample = failed(&["report", "--cgroups", name, "-i"], &with);
    assert!(no_sample.ends_with("with.data --sort cgroup` lists their cgroups"), "{no_sample}");
    assert!(groups.named(&no_sample).contains("matches `--cgroups OTHER`"), "{no_sample}");
}

/// The index of the recording has to list records about cgroups, or later parts would lack names.
#[test]
fn cgroups_that_begin_during_the_recording_have_names_in_all_parts() {
    needs([Need::Tracefs, Need::Python]);
    let (outer, folder) = (Cgroup::new(), Folder::new());
    let path = folder.path("own.data");
    let words = workload("calls 500").iter().map(|word| format!("'{word}' ")).collect::<String>();
    let one = |at: usize| {
        let made = outer.path.join(format!("made{at}"));
        format!("mkdir {0}; sh -c 'echo $$ > {0}/cgroup.procs; exec \"$@\"' sh {words}; rmdir {0}\n", made.display())
    };
    let line: String = (0..4).map(one).collect();
    let recorded = perf_prof(&["record", "-q", "-e", CALL, "-a", "--all-cgroups", "-o"])
        .arg(&path)
        .args(["--", "sh", "-c", &line])
        .status();
    assert!(recorded.unwrap().success());
    assert!(!fs::exists(outer.path.join("made0")).unwrap());
    let counting = "
import perf_prof
counts = perf_prof.Count('_cgroup')
def __sample__(e): counts.add(e)
def __partial__(): return counts
def __merge__(partials):
    for partial in partials: counts.update(partial)
def __exit__():
    for row in sorted(counts.items()): print(*row)
";
    let script = folder.write("c.py", counting.as_bytes());
    let count = |jobs| {
        let words = ["-q", "--input", path.to_str().unwrap(), "--jobs", jobs, "--cgroups", &outer.name];
        let words: Vec<&str> = words.into_iter().chain([script.to_str().unwrap()]).collect();
        stdout(&python(&words)).replace(&outer.name, "OUTER")
    };
    let whole = count("1");
    expect![[r#"
        /OUTER/made0 500
        /OUTER/made1 500
        /OUTER/made2 500
        /OUTER/made3 500
    "#]]
    .assert_eq(&whole);
    assert_eq!(count("3"), whole);
}

/// Tools for containers start tasks in their cgroups in this way.
#[test]
fn events_of_single_cgroups_are_recorded_as_perf_does() {
    needs([Need::Tracefs, Need::Perf]);
    let (groups, folder) = (Groups::new(), Folder::new());
    let path = folder.path("own.data");
    let list = format!("{},{}", groups.inner.name, groups.other.name);
    let events = format!("{CALL},syscalls:sys_exit_getpgid");
    let command = groups.calls();
    let recorded =
        perf_prof(&["record", "-q", "-e", &events, "-G", &list, "-o"]).arg(&path).arg("--").args(&command).status();
    assert!(recorded.unwrap().success());
    let lines = recorder::perf(&path, &["script", "-F", "event"]);
    let count = |name: &str| lines.lines().filter(|line| line.trim().trim_end_matches(':') == name).count();
    assert_eq!([CALL, "syscalls:sys_exit_getpgid"].map(count), [20, 7]);
    let of_perf = folder.path("perf.data");
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    record(&of_perf, &[&["-a", "-e", &events, "-G", &list, "--"], &command[..]].concat());
    assert_eq!(recorder::perf(&of_perf, &["script", "-F", "event"]).lines().count(), 27);
}
