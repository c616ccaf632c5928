//! Names of addresses in recordings: by what binaries were built from, never by what is here now.

use std::{
    fs::{self, File},
    process::{Command, Stdio},
};

use crate::harness::{Folder, perf, python, record, stdout};

/// Prints each call chain's symbols, innermost first.
const CHAINS: &str = "def __sample__(e):\n    print(*[f['symbol'] for f in e._callchain])\n";

const PROGRAM: &str = "#include <unistd.h>\n\
    __attribute__((noinline)) void inner_function(void) { for (volatile int i = 0; i < 30000000; i++); }\n\
    __attribute__((noinline)) void outer_function(void) { inner_function(); getppid(); }\n\
    int main(void) { for (int i = 0; i < 5; i++) outer_function(); return 0; }\n";

#[test]
fn frames_have_the_names_of_their_build_and_none_of_another() {
    if perf().is_none() {
        return;
    }
    let folder = Folder::new();
    let (source, program) = (folder.write("spin.c", PROGRAM.as_bytes()), folder.path("spin"));
    let compile = |optimize: &str| {
        let args = ["-fno-omit-frame-pointer", "-Wl,--build-id", optimize, "-o"];
        Command::new("cc").args(args).arg(&program).arg(&source).status()
    };
    match compile("-O0") {
        Ok(status) if status.success() => {}
        _ => return println!("skipped: there is no C compiler"),
    }
    let data = folder.path("perf.data");
    record(&data, &["-g", "-e", "cpu-clock", "-N", "--", program.to_str().unwrap()]);
    let script = folder.write("chains.py", CHAINS.as_bytes());
    let chains = || {
        let home = folder.path("home");
        let output = Command::new(env!("CARGO_BIN_EXE_perf-prof"))
            .args(["python", "-q", "--input", data.to_str().unwrap(), script.to_str().unwrap()])
            .env("HOME", home)
            .env_remove("PERF_BUILDID_DIR")
            .output();
        stdout(&output.unwrap())
    };
    let named = chains();
    let spinning = named.lines().filter(|line| line.starts_with("inner_function outer_function main")).count();
    assert!(spinning > named.lines().count() / 2, "{named}");
    // In the kernel too: it is the one that runs.
    let kernel = Command::new("perf").args(["script", "-F", "ip,sym", "-i"]).arg(&data).output().unwrap();
    let kernel = String::from_utf8_lossy(&kernel.stdout).contains("asm_sysvec_apic_timer_interrupt");
    assert_eq!(named.contains("asm_sysvec_apic_timer_interrupt"), kernel);
    // Another build at its place.
    fs::remove_file(&program).unwrap();
    assert!(compile("-O1").unwrap().success());
    let strange = chains();
    assert_eq!(strange.lines().count(), named.lines().count());
    assert!(!strange.contains("inner_function"), "{strange}");
}

/// A recording in a pipe has no list of build ids, and its kernel's functions had no names.
#[test]
fn the_kernels_functions_have_names_in_pipes_that_tell_its_build_id() {
    let Some(perf) = perf() else { return };
    let folder = Folder::new();
    let script = folder.write("chains.py", CHAINS.as_bytes());
    let events = ["-g", "-e", "sched:sched_switch", "-a", "-o", "-", "--", "sleep", "0.2"];
    let ours = env!("CARGO_BIN_EXE_perf-prof");
    for (program, options, has_names) in [
        (perf, &["record", "-q"][..], false),
        (perf, &["record", "-q", "--buildid-mmap"], true),
        (ours, &["record", "-q"], true),
    ] {
        let data = folder.path("pipe.data");
        let mut command = Command::new(program);
        command.args(options).args(events).stdout(File::create(&data).unwrap()).stderr(Stdio::null());
        assert!(command.status().unwrap().success());
        let output = python(&["-q", "--input", data.to_str().unwrap(), script.to_str().unwrap()]);
        let chains = stdout(&output);
        assert!(chains.lines().count() > 5, "{chains}");
        assert_eq!(chains.contains("__schedule"), has_names, "{program} {options:?}: {chains}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.contains("no build id of its kernel (`perf record` with --buildid-mmap"), !has_names, "{said}");
    }
}
