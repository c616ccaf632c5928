//! In which file a static probe is searched.

use std::process::{Command, Stdio};

use super::{Programs, fields};
use crate::harness::{
    compile::compile,
    counting::objects,
    machine::{Need, needs, skip},
    run::{PATIENCE, perf_prof, stdout, with_patience},
};

const LIBRARY: &str = r#"
#include <sys/sdt.h>
int answer(int n) { DTRACE_PROBE1(lib, answer, n); return n + 1; }
"#;

const PROGRAM: &str = r#"
#include <stdlib.h>
#include <sys/sdt.h>
#include <unistd.h>
int answer(int n);
int main(int argc, char **argv) {
    int times = argc > 1 ? atoi(argv[1]) : 3;
    for (int i = 0; i < times || times < 0; i++) {
        DTRACE_PROBE1(app, ask, i);
        answer(i);
        if (times < 0) usleep(1000);
    }
    return 0;
}
"#;

fn programs() -> Programs {
    needs(super::STATIC_PROBES);
    let folder = tempfile::tempdir().unwrap();
    compile(folder.path(), "libanswer.so", LIBRARY, &["-O1", "-shared", "-fPIC"]);
    let library = folder.path().join("libanswer.so").display().to_string();
    compile(folder.path(), "p", PROGRAM, &["-O1", &library, "-Wl,-rpath,$ORIGIN"]);
    Programs { folder }
}

#[test]
fn libraries_are_found_by_name_and_path() {
    let programs = programs();
    let folder = programs.path().display().to_string();
    for file in ["libanswer".to_owned(), "libanswer.so".to_owned(), format!("{folder}/libanswer.so")] {
        let events = format!("usdt:lib:answer@{file},usdt:app:ask@./p");
        let mut command = perf_prof(&["trace", "--json", "-e", &events, "--", "./p"]);
        command.current_dir(programs.path()).env("LD_LIBRARY_PATH", &folder);
        let events = objects(&stdout(&with_patience(&mut command, PATIENCE).output().unwrap()));
        let expected = ["0", "1", "2"].map(|n| [format!("sdt_app:ask {n}"), format!("sdt_lib:answer {n}")]).concat();
        assert_eq!(fields(&events, &["_event", "arg1"]), expected, "{file}");
    }
}

#[test]
fn a_process_has_the_probes_of_all_its_files_also_in_a_container() {
    needs([Need::Namespaces]);
    let programs = programs();
    let inside = programs.file("inside");
    std::fs::create_dir(&inside).unwrap();
    let copy = "mount -t tmpfs none inside && cp p libanswer.so inside && exec ./inside/p -1";
    for command in [&["./p", "-1"][..], &["unshare", "-m", "sh", "-c", copy]] {
        let mut program = Command::new(command[0]);
        program.args(&command[1..]).current_dir(programs.path()).stdout(Stdio::null());
        let mut program = program.spawn().unwrap();
        let pid = program.id().to_string();
        let is_ready = || {
            let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
            maps.contains("libanswer")
        };
        while !is_ready() && program.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let listed = stdout(&programs.run(&["list", "-p", &pid, "usdt:*:a*"]));
        let names: Vec<&str> = listed.lines().map(|line| line.split('@').next().unwrap()).collect();
        assert_eq!(names, ["usdt:app:ask", "usdt:lib:answer"], "{command:?}");
        for events in ["usdt:app:ask,usdt:lib:answer", "usdt:*:a*", "usdt:app:ask@p,usdt:lib:answer@libanswer"] {
            let output = programs.run(&["trace", "--json", "-e", events, "-p", &pid, "-N", "20"]);
            let events = objects(&stdout(&output));
            let asked = events.iter().filter(|event| event["_event"] == "sdt_app:ask").count();
            assert!((9..=11).contains(&asked) && events.len() == 20, "{command:?}: {asked} of {}", events.len());
        }
        program.kill().unwrap();
        program.wait().unwrap();
    }
}

/// Debian's Python contains static probes with semaphores. A Python without them is no failure.
#[test]
fn python_says_when_it_collects_garbage() {
    needs([Need::Tracefs, Need::Uprobes, Need::Programs]);
    const PYTHON: &str = "/usr/bin/python3";
    let listed = perf_prof(&["list", "usdt:python:gc*@/usr/bin/python3"]).output().unwrap();
    if !listed.status.success() {
        skip(Need::Programs, format!("{PYTHON} has no static probes"));
    }
    let work = "import gc\nfor n in range(99): gc.collect(n % 3)";
    let selector = "span:gc=usdt:python:gc__start@/usr/bin/python3..usdt:python:gc__done@\"/usr/bin/python3\"\
                    /begin.arg1 < 3/key=_tid/generation=arg1/";
    let mut command = perf_prof(&["top", "--json", selector, "--by", "generation", "--", PYTHON, "-c", work]);
    let text = stdout(&with_patience(&mut command, PATIENCE).output().unwrap());
    let rows = objects(&text)[0]["rows"].clone();
    let count = |generation: u64| {
        let row = rows.as_array().unwrap().iter().find(|row| row["generation"] == generation);
        row.map_or(0, |row| row["count"].as_u64().unwrap())
    };
    // The interpreter also collects garbage by itself.
    assert!([count(0), count(1), count(2)].iter().all(|count| (33..66).contains(count)), "{rows}");
}
