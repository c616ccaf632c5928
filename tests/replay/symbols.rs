//! Names of addresses in recordings. They come from a file with the recorded build id, or from the mapped file itself.
//! They never come from another file that is at its path now.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use crate::harness::{
    compile::compile,
    machine::{Need, needs, skip},
    recording::{Folder, ours, perf, python, record, record_here},
    run::{perf_prof, said, stdout, tested_program},
};

/// A script that prints the symbols of each call chain, innermost first.
const CHAINS: &str = "def __sample__(e):\n    print(*[f['symbol'] for f in e._callchain])\n";

const PROGRAM: &str = "#include <unistd.h>\n\
    __attribute__((noinline)) void inner_function(void) { for (volatile int i = 0; i < 30000000; i++); }\n\
    __attribute__((noinline)) void outer_function(void) { inner_function(); getppid(); }\n\
    int main(void) { for (int i = 0; i < 5; i++) outer_function(); return 0; }\n";

#[test]
fn frames_have_the_names_of_their_build_and_none_of_another() {
    needs([Need::Perf]);
    let folder = Folder::new();
    let (source, program) = (folder.write("spin.c", PROGRAM.as_bytes()), folder.path("spin"));
    let compile = |optimize: &str| {
        let args = ["-fno-omit-frame-pointer", "-Wl,--build-id", optimize, "-o"];
        Command::new("cc").args(args).arg(&program).arg(&source).status()
    };
    match compile("-O0") {
        Ok(status) if status.success() => {}
        _ => skip(Need::Compilers, "no cc"),
    }
    let data = folder.path("perf.data");
    record(&data, &["-g", "-e", "cpu-clock", "-N", "--", program.to_str().unwrap()]);
    let script = folder.write("chains.py", CHAINS.as_bytes());
    let chains = || {
        let home = folder.path("home");
        let output = Command::new(tested_program())
            .args(["python", "-q", "--input", data.to_str().unwrap(), script.to_str().unwrap()])
            .env("HOME", home)
            .env_remove("PERF_BUILDID_DIR")
            .output();
        stdout(&output.unwrap())
    };
    let named = chains();
    let spinning = named.lines().filter(|line| line.starts_with("inner_function outer_function main")).count();
    assert!(spinning > named.lines().count() / 2, "{named}");
    // Kernel frames have names too, because the recorded kernel still runs.
    let kernel = Command::new("perf").args(["script", "-F", "ip,sym", "-i"]).arg(&data).output().unwrap();
    let kernel = String::from_utf8_lossy(&kernel.stdout).contains("asm_sysvec_apic_timer_interrupt");
    assert_eq!(named.contains("asm_sysvec_apic_timer_interrupt"), kernel);
    // Another build of the program is at the path now.
    fs::remove_file(&program).unwrap();
    assert!(compile("-O1").unwrap().success());
    let strange = chains();
    assert_eq!(strange.lines().count(), named.lines().count());
    assert!(!strange.contains("inner_function"), "{strange}");
}

/// The stacks end at the program's innermost frame, because the removed file contained the unwind rules for the frames
/// after it.
#[test]
fn stacks_that_end_at_a_program_that_was_removed_are_counted_with_its_path() {
    needs([Need::Perf]);
    let folder = Folder::new();
    let program = compile(&folder.path(""), "gone", PROGRAM, &["-O2", "-fomit-frame-pointer", "-Wl,--build-id"]);
    let data = folder.path("gone.data");
    let file = data.to_str().unwrap();
    let call = "syscalls:sys_enter_getppid";
    record_here(&data, &["-q", "-e", call, "--call-graph", "dwarf,4096", "--", program.to_str().unwrap()]);
    let script = folder.write("chains.py", CHAINS.as_bytes());
    let script = script.to_str().unwrap();
    let line = format!(
        "5 of 5 unwound stacks are incomplete: the file with the code is missing or cannot be read: {}",
        program.display()
    );
    let faces = [
        &["top", call, "--by", "stack", "--input", file][..],
        &["python", "--input", file, script],
        &["report", "-e", call, "-i", file],
    ];
    for is_there in [true, false] {
        if !is_there {
            fs::rename(&program, folder.path("elsewhere")).unwrap();
        }
        for face in faces {
            let output = perf_prof(face).env("HOME", folder.path("home")).output().unwrap();
            assert!(output.status.success(), "{face:?}: {}", said(&output));
            assert_eq!(said(&output).contains(&line), !is_there, "{face:?}: {}", said(&output));
        }
    }
    // The line about names says how to provide the file.
    let stacks = || {
        let output = perf_prof(faces[0]).env("HOME", folder.path("home")).output().unwrap();
        (stdout(&output), said(&output))
    };
    assert!(stacks().1.contains("`perf buildid-cache -a FILE`"), "{}", stacks().1);
    let mut add = Command::new("perf");
    add.arg("--buildid-dir")
        .arg(folder.path("home/.debug"))
        .args(["buildid-cache", "-a"])
        .arg(folder.path("elsewhere"));
    assert!(add.status().unwrap().success());
    let (table, said) = stacks();
    assert!(table.contains("_start;") && !said.contains("unwound stacks"), "{table}{said}");
}

/// A recording in pipe format contains no list of build ids. The kernel's build id is in another record.
#[test]
fn the_kernels_functions_have_names_in_pipes_that_tell_its_build_id() {
    needs([Need::Perf]);
    let folder = Folder::new();
    let script = folder.write("chains.py", CHAINS.as_bytes());
    let events = ["-g", "-e", "sched:sched_switch", "-a", "-o", "-", "--", "sleep", "0.2"];
    let ours = tested_program();
    for (program, options, has_names) in [
        ("perf", &["record", "-q"][..], false),
        ("perf", &["record", "-q", "--buildid-mmap"], true),
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
        assert_eq!(said.contains("no build id of its kernel; `perf record` stores it"), !has_names, "{said}");
    }
}

/// A program whose samples are all in the kernel. So perf lists no build id of the program's file.
const SLEEPER: &str = "#include <unistd.h>\n\
    __attribute__((noinline)) void inner_function(void) { usleep(1000); }\n\
    __attribute__((noinline)) void middle_function(void) { inner_function(); inner_function(); }\n\
    __attribute__((noinline)) void outer_function(void) { middle_function(); middle_function(); }\n\
    int main(void) { for (int i = 0; i < 20; i++) outer_function(); return 0; }\n";

/// Records a program without storing the build id of its file. Returns the program and the recording.
fn without_build_id(folder: &Folder, options: &[&str]) -> (PathBuf, PathBuf) {
    needs([Need::Perf]);
    let (source, program, data) =
        (folder.write("sleep.c", SLEEPER.as_bytes()), folder.path("sleeper"), folder.path("perf.data"));
    let compile = Command::new("cc").args(["-O0", "-fno-omit-frame-pointer", "-o"]).arg(&program).arg(&source).status();
    if !compile.is_ok_and(|status| status.success()) {
        skip(Need::Compilers, "no cc");
    }
    // Time stamps of files change only once per tick.
    thread::sleep(Duration::from_millis(50));
    let file = fs::metadata(&program).unwrap();
    let number = format!("{:02x}:{:02x} {} ", libc::major(file.dev()), libc::minor(file.dev()), file.ino());
    for attempt in 1.. {
        record(&data, &[options, &["-e", "sched:sched_switch", "--", program.to_str().unwrap()]].concat());
        let mapped = perf(&["script", "--show-mmap-events"], &data);
        let mapped = mapped.iter().find(|line| line.ends_with(program.to_str().unwrap())).unwrap();
        if mapped.contains(&number) && file.created().is_ok() {
            break;
        }
        // While another program on the machine requests build ids, mappings contain build ids instead of inodes.
        if attempt == 20 || !mapped.contains('<') {
            skip(Need::Storage, "this file system shows other inodes in memory maps, or has no times of creation");
        }
        thread::sleep(Duration::from_millis(300));
    }
    (program, data)
}

/// Returns the names of all frames in the program, and the messages on stderr.
fn names_in(folder: &Folder, program: &Path, data: &Path, options: &[&str]) -> (Vec<String>, String) {
    let script = format!(
        "def __sample__(e):\n    for f in e._callchain:\n        if f['dso'] == '{}': print(f['symbol'])\n",
        program.display()
    );
    let script = folder.write("names.py", script.as_bytes());
    let output = python(&[options, &["--input", data.to_str().unwrap(), script.to_str().unwrap()]].concat());
    (stdout(&output).lines().map(str::to_owned).collect(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// perf lists the build ids of files with samples, but not of files that only contain callers. These callers still get
/// names.
#[test]
fn callers_in_files_without_a_build_id_have_the_names_of_the_file_that_was_mapped() {
    let folder = Folder::new();
    let (program, data) = without_build_id(&folder, &["-g"]);
    let perf = Command::new("perf").args(["script", "--no-inline", "-F", "ip,sym,dso", "-i"]).arg(&data).output();
    let perf = String::from_utf8_lossy(&perf.unwrap().stdout).into_owned();
    let of_program = perf.lines().filter_map(|line| line.trim_end().strip_suffix(&format!(" ({})", program.display())));
    let of_perf: Vec<&str> = of_program.filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert!(of_perf.iter().filter(|name| **name == "outer_function").count() >= 80, "{perf}");
    let (named, said) = names_in(&folder, &program, &data, &[]);
    assert_eq!(named, of_perf);
    assert!(!said.contains(program.to_str().unwrap()), "{said}");
    // The start of the recording is not known for a copied file.
    let copy = folder.path("copy.data");
    fs::copy(&data, &copy).unwrap();
    let (named, _) = names_in(&folder, &program, &copy, &[]);
    assert!(named.iter().all(|name| name == "Unknown"), "{named:?}");
}

/// Stacks in files without a build id must not end after the first frame.
#[test]
fn stacks_without_any_build_id_are_unwound_through_the_files_that_were_mapped() {
    let folder = Folder::new();
    let (program, data) = without_build_id(&folder, &["-B", "--call-graph", "dwarf"]);
    let (named, _) = names_in(&folder, &program, &data, &[]);
    let whole = ["inner_function", "middle_function", "outer_function", "main"];
    assert!(named.windows(4).filter(|names| *names == whole).count() >= 80, "{named:?}");
}

/// The file that is at the path now would give wrong names.
#[test]
fn changed_files_give_no_names_and_are_reported() {
    let folder = Folder::new();
    let (program, data) = without_build_id(&folder, &["-g"]);
    let (named, _) = names_in(&folder, &program, &data, &[]);
    assert!(named.contains(&"outer_function".to_owned()), "{named:?}");
    let check = || {
        let (named, said) = names_in(&folder, &program, &data, &[]);
        assert!(!named.is_empty() && named.iter().all(|name| name == "Unknown"), "{named:?}");
        let line = format!("): the recording has no build id for {}", program.display());
        assert_eq!(said.matches(&line).count(), 1, "{said}");
        assert!(said.contains("; to store it, use --buildid-mmap with `perf record`"), "{said}");
        let (_, said) = names_in(&folder, &program, &data, &["-q"]);
        assert!(!said.contains("have no names"), "{said}");
    };
    // Processes that replay parts print the message once.
    let merging = "n = 0\ndef __sample__(e):\n    global n\n    n += len(e._callchain)\n\
                   def __partial__():\n    return n\ndef __merge__(parts):\n    print(sum(parts))\n";
    let merging = folder.write("merging.py", merging.as_bytes());
    let said_of = |jobs: &[&str]| {
        let output = python(&[jobs, &["--input", data.to_str().unwrap(), merging.to_str().unwrap()]].concat());
        stdout(&output);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        said.lines().filter(|line| line.contains("have no names")).map(str::to_owned).collect::<Vec<_>>()
    };
    let check_jobs = || {
        let alone = said_of(&[]);
        assert_eq!(alone.len(), 1, "{alone:?}");
        assert_eq!(said_of(&["--jobs", "2"]), alone);
    };
    let bytes = fs::read(&program).unwrap();
    let inode = || fs::metadata(&program).unwrap().ino();
    let mapped = inode();
    fs::write(&program, &bytes).unwrap();
    assert_eq!(inode(), mapped);
    check();
    check_jobs();
    let other = folder.write("other", &bytes);
    fs::rename(other, &program).unwrap();
    assert_ne!(inode(), mapped);
    check();
}

/// The vdso is no file, so the kernel does not report its build id. But it is a part of the kernel.
#[test]
fn a_program_that_reads_the_clock_has_the_names_of_the_vdso() {
    needs([Need::Tracefs, Need::Vdso]);
    let folder = Folder::new();
    // The coarse clock is read in the vdso with every clock source.
    let source = "#include <time.h>\nint main(void) { struct timespec t; clock_t end = clock() + CLOCKS_PER_SEC / 2;\n\
        while (clock() < end) for (int i = 0; i < 200000; i++) clock_gettime(CLOCK_MONOTONIC_COARSE, &t); }";
    let program = compile(&folder.path(""), "clock", source, &["-O1"]);
    let data = folder.path("d");
    record_here(&data, &["-e", "cpu-clock", "--", program.to_str().unwrap()]);
    let lines = ours(&["script", "-F", "ip,sym,dso"], &data);
    let of_vdso: Vec<&String> = lines.iter().filter(|line| line.contains("[vdso]")).collect();
    assert!(!of_vdso.is_empty(), "{lines:?}");
    assert!(of_vdso.iter().all(|line| line.contains("clock_gettime")), "{of_vdso:?}");
}
