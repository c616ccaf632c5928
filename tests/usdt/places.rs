//! Static probes with several places, semaphores, and files with other layouts.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use perf_prof_symbols::symbol::elf::{Elf, static_probes};
use serde_json::Value as Json;

use super::{Programs, fields};
use crate::harness::run::{printed, stdout};

/// A program with a probe at four places: two with the same types, one with constants, and one with other types.
const PLACES: &str = r#"
#include <stdio.h>
#include <sys/sdt.h>
__attribute__((noinline)) void one(int n, unsigned char flag) { DTRACE_PROBE2(app, step, n, flag); printf("%d %d\n", n, flag); }
__attribute__((noinline)) void two(unsigned char flag, int n) { DTRACE_PROBE2(app, step, n, flag); printf("%d %d\n", n, flag); }
__attribute__((noinline)) void three(void) { DTRACE_PROBE2(app, step, -3, 0); puts("-3 0"); }
__attribute__((noinline)) void four(long n, int flag) { DTRACE_PROBE2(app, step, n, flag); printf("%ld %d\n", n, flag); }
int main(void) {
    for (int i = 0; i < 10; i++) { one(-i, 200 + i); two(255 - i, i); three(); four(-5000000000 - i, -i); }
    return 0;
}
"#;

#[test]
fn all_places_of_a_probe_are_one_event_with_the_types_of_each() {
    let programs = Programs::compiled(PLACES, &[]);
    let (events, printed) = programs.trace("usdt:app:step@./p", &[]);
    assert_eq!(fields(&events, &["arg1", "arg2"]), printed);
    assert_eq!(events.len(), 40);
    assert!(events.iter().all(|event| event["_event"] == "sdt_app:step"));
    let mut places: Vec<u64> = events.iter().map(|event| event["__probe_ip"].as_u64().unwrap()).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 4);
    let top = stdout(&programs.run(&["top", "--json", "usdt:app:step@./p", "--by", "event", "--", "./p"]));
    let rows = &crate::harness::counting::objects(top.lines().last().unwrap())[0]["rows"];
    assert_eq!((rows.as_array().unwrap().len(), &rows[0]["count"]), (1, &Json::from(40)));
}

/// A recording contains an event for each layout of the arguments, all with the same name.
#[test]
fn a_recording_has_the_same_events_as_the_live_run() {
    let programs = Programs::compiled(PLACES, &[]);
    programs.run(&["record", "-q", "-o", "r.data", "-e", "usdt:app:step@./p", "--", "./p"]);
    let replay = |events: &[&str]| -> Vec<String> {
        let text = stdout(&programs.run(&[&["trace", "--json", "--input", "r.data"], events].concat()));
        fields(&crate::harness::counting::objects(&text), &["arg1", "arg2"])
    };
    let printed = printed(&Command::new(programs.file("p")).output().unwrap());
    assert_eq!(replay(&[]), printed);
    assert_eq!(replay(&["-e", "usdt:app:step"]), printed);
    assert_eq!(replay(&["-e", "sdt_app:step"]), printed);
    assert_eq!(replay(&["-e", "usdt:a*:st*/arg1 == -3 && arg2 == 0/"]), ["-3 0"; 10]);
}

/// A program that prints whether the probe is traced, whenever it reads a line.
const SEMAPHORE: &str = r#"
#define _SDT_HAS_SEMAPHORES 1
#include <stdio.h>
#include <sys/sdt.h>
unsigned short app_asked_semaphore __attribute__((section(".probes")));
int main(void) {
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        if (app_asked_semaphore) DTRACE_PROBE1(app, asked, line);
        printf("%d\n", app_asked_semaphore);
        fflush(stdout);
    }
    return 0;
}
"#;

/// A running program that answers each line with a line.
struct Asked(Child);

impl Asked {
    fn start(command: &mut Command) -> Asked {
        Asked(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    fn ask(&mut self) -> String {
        use std::io::Write;
        self.0.stdin.as_mut().unwrap().write_all(b"hello\n").unwrap();
        let mut line = String::new();
        BufReader::with_capacity(1, self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_semaphore_is_up_while_the_probe_is_traced_and_only_in_traced_processes() {
    let programs = Programs::compiled(SEMAPHORE, &[]);
    let program = || Asked::start(&mut Command::new(programs.file("p")));
    let (mut traced, mut other) = (program(), program());
    assert_eq!([traced.ask(), other.ask()], ["0", "0"]);
    let pid = traced.0.id().to_string();
    // The process's mapped files are searched, so the file need not be named.
    let args = ["trace", "--json", "-e", "usdt:app:asked//line=arg1:string/", "-p", &pid, "-N", "1"];
    let mut command = crate::harness::run::perf_prof(&args);
    let mut run = crate::harness::run::with_patience(&mut command, crate::harness::run::PATIENCE)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut answers = Vec::new();
    while run.try_wait().unwrap().is_none() {
        answers.push(traced.ask());
        assert_eq!(other.ask(), "0");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(answers.contains(&"1".to_owned()) && answers.iter().all(|answer| ["0", "1"].contains(&answer.as_str())));
    let mut output = String::new();
    std::io::Read::read_to_string(run.stdout.as_mut().unwrap(), &mut output).unwrap();
    assert!(run.wait().unwrap().success());
    assert_eq!(fields(&crate::harness::counting::objects(&output), &["line", "_event"]), ["hello\n sdt_app:asked"]);
    assert_eq!([traced.ask(), other.ask()], ["0", "0"]);
}

/// prelink moved the file's code, but did not change its notes. `.stapsdt.base` shows how far the code was moved.
#[test]
fn the_probes_of_a_file_that_was_moved_are_found() {
    let programs = Programs::compiled(PLACES, &[]);
    let path = programs.file("p");
    let mut bytes = fs::read(&path).unwrap();
    let notes: Vec<usize> =
        (0..bytes.len() - 8).filter(|&at| &bytes[at..at + 8] == b"stapsdt\0" && bytes[at - 4] == 3).collect();
    assert_eq!(notes.len(), 4);
    for note in notes {
        for at in [note + 8, note + 16] {
            let address = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            bytes[at..at + 8].copy_from_slice(&(address + 0x70_0000).to_le_bytes());
        }
    }
    let addresses = |path| -> Vec<u64> {
        let probes = static_probes(&Elf::open(path).unwrap()).unwrap();
        probes.into_iter().map(|probe| probe.address).collect()
    };
    let before = addresses(&path);
    fs::write(&path, bytes).unwrap();
    assert_eq!(addresses(&path), before);
    let (events, printed) = programs.trace("usdt:app:step@./p", &[]);
    assert_eq!(fields(&events, &["arg1", "arg2"]), printed);
}
