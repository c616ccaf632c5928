//! `perf-prof script` with scripts that were written for `perf script`: the ways to write the command line, scripts
//! that are found by name, their wrappers, and live events.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

use crate::harness::{
    machine::{Need, needs},
    recorder::generator_words,
    recording::{record, record_here, record_pipe},
    run::{perf_prof, said, stdout, tested_program, with_patience},
    wait::Killed,
};

/// A script that prints its arguments and how often the handler was called.
const COUNTER: &str = r#"
import sys
calls = 0
def trace_begin():
    print('begin', sys.argv[1:], flush=True)
def syscalls__sys_enter_getppid(event_name, context, cpu, secs, nsecs, pid, comm, callchain, nr):
    global calls
    calls += 1
    if calls == 1:
        print('called', flush=True)
def trace_end():
    print('end', calls)
"#;

const EVENT: &str = "syscalls:sys_enter_getppid";

/// A command that makes this many calls.
fn calls(calls: u32) -> Vec<String> {
    ["env".to_owned(), format!("PERF_PROF_TEST_CALLS={calls}")].into_iter().chain(generator_words()).collect()
}

/// Returns the output of the script, without the line that the command prints.
#[track_caller]
fn shown(output: &Output) -> String {
    let lines = stdout(output);
    lines.lines().filter(|line| !line.starts_with("made ")).map(|line| format!("{line}\n")).collect()
}

/// A folder with the script `counter` and its wrappers, laid out like perf's.
struct Scripts(TempDir);

impl Scripts {
    fn new() -> Scripts {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("scripts/python/bin");
        fs::create_dir_all(&bin).unwrap();
        let script = "scripts/python/counter.py";
        fs::write(dir.path().join(script), COUNTER).unwrap();
        let wrappers = [
            ("counter-record", format!("perf record -R -e {EVENT} \"$@\"")),
            (
                "counter-report",
                format!(
                    "# description: counts calls\n# args: [word]\nperf script \"$@\" -s \"$PERF_EXEC_PATH\"/{script} x"
                ),
            ),
            ("counttop-record", format!("perf record -e {EVENT} \"$@\"")),
            ("counttop-report", format!("# args: [word]\nperf script -s \"$PERF_EXEC_PATH\"/{script} \"$@\"")),
            ("needy-record", "perf record \"$@\"".to_owned()),
            ("needy-report", "# args: <comm>\nperf script \"$@\"".to_owned()),
        ];
        for (name, text) in wrappers {
            fs::write(bin.join(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        }
        Scripts(dir)
    }

    fn script(&self) -> PathBuf {
        self.0.path().join("scripts/python/counter.py")
    }

    /// Returns a command of `perf-prof script` in this folder. Its PATH has no perf.
    fn command(&self, args: &[&str]) -> Command {
        let tools = self.0.path().join("tools");
        if fs::create_dir(&tools).is_ok() {
            for tool in ["env", "true"] {
                let path = std::env::var_os("PATH").unwrap();
                let found = std::env::split_paths(&path).map(|folder| folder.join(tool));
                symlink(found.into_iter().find(|path| path.exists()).unwrap(), tools.join(tool)).unwrap();
            }
        }
        let mut command = perf_prof(&["script"]);
        command.args(args).env("PERF_EXEC_PATH", self.0.path()).env("PATH", &tools).current_dir(self.0.path());
        with_patience(command.stdin(Stdio::null()), 100);
        command
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }
}

/// Returns words and a command as one list of arguments.
fn with_command<'a>(words: &[&'a str], command: &'a [String]) -> Vec<&'a str> {
    words.iter().copied().chain(command.iter().map(String::as_str)).collect()
}

#[test]
fn scripts_get_the_arguments_that_perf_gives_them() {
    needs([Need::Tracefs, Need::Perf, Need::Python]);
    let dir = tempfile::tempdir().unwrap();
    record(&dir.path().join("perf.data"), &with_command(&["-e", EVENT, "--"], &calls(7)));
    fs::write(dir.path().join("x.py"), "import sys\nprint(sys.argv)\n").unwrap();
    let run = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        let output = command.arg("script").args(args).current_dir(dir.path()).stdin(Stdio::null()).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    for args in [
        &["-s", "x.py"][..],
        &["-s", "Python:x.py", "a"],
        &["-s", "python:x.py", "a", "-i", "b"],
        &["-s", "py:x.py", "--", "-x", "--", "y"],
        &["-sx.py", "-i", "perf.data", "a", "-v"],
        &["--script=x.py", "-f", "--", "--", "a"],
        &["-i", "perf.data", "x.py", "a", "--", "-s"],
        &["-a", "x.py"],
    ] {
        let ours = run(tested_program(), args);
        assert_eq!(ours, run("perf", args), "{args:?}");
        assert!(ours.0 && ours.1.starts_with("['x.py'"), "{args:?}: {ours:?}");
    }
}

#[test]
fn a_recording_that_comes_through_a_pipe_needs_no_option() {
    needs([Need::Tracefs, Need::Perf, Need::Python]);
    let scripts = Scripts::new();
    let path = scripts.0.path().join("pipe.data");
    record_pipe(&path, &with_command(&["-e", EVENT, "--"], &calls(9)));
    let through_pipe = |args: &[&str]| {
        let mut cat = Command::new("cat").arg(&path).stdout(Stdio::piped()).spawn().unwrap();
        let output = perf_prof(args).current_dir(scripts.0.path()).stdin(cat.stdout.take().unwrap()).output().unwrap();
        cat.wait().unwrap();
        output
    };
    assert_eq!(
        stdout(&through_pipe(&["script", "-s", scripts.script().to_str().unwrap()])),
        "begin []\ncalled\nend 9\n"
    );
    assert_eq!(stdout(&through_pipe(&["script"])).lines().filter(|line| line.contains(EVENT)).count(), 9);
    assert!(stdout(&through_pipe(&["report", "--stdio"])).contains(&format!("# Samples: 9  of event '{EVENT}'")));
    assert!(stdout(&through_pipe(&["evlist"])).contains(EVENT));
    // stdin is a file or a device, and no pipe, so perf.data is read.
    let output = scripts.run(&[]);
    assert!(output.status.code() == Some(1) && said(&output).contains("perf.data"), "{}", said(&output));
}

#[test]
fn lines_of_the_list_are_those_of_perf() {
    needs([Need::Perf, Need::Python]);
    let list = |program: &str| {
        let output = Command::new(program).args(["script", "-l"]).output().unwrap();
        stdout(&output).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (ours, of_perf) = (list(tested_program()), list("perf"));
    assert_eq!(ours[0], of_perf[0]);
    // As in perf, further words change nothing.
    let with_word = perf_prof(&["script", "-l", "x"]).output().unwrap();
    assert!(stdout(&with_word).lines().eq(ours.iter().map(String::as_str)), "{}", said(&with_word));
    assert!(ours.iter().all(|line| of_perf.contains(line)), "{ours:#?}\n{of_perf:#?}");
    let of_scripts = Scripts::new().run(&["-l"]);
    let line = format!("  {:<36} counts calls\n", "counter [word]");
    assert!(stdout(&of_scripts).contains(&line), "{}", stdout(&of_scripts));
}

#[test]
fn a_script_with_a_name_is_recorded_and_reported_without_perf() {
    needs([Need::Tracefs, Need::Python]);
    let scripts = Scripts::new();
    let command = calls(11);
    stdout(&scripts.run(&with_command(&["record", "counter", "--"], &command)));
    assert!(scripts.0.path().join("perf.data").exists());
    assert_eq!(shown(&scripts.run(&["report", "counter"])), "begin ['x']\ncalled\nend 11\n");
    // Without a recording, both wrappers run at once, connected by a pipe.
    fs::remove_file(scripts.0.path().join("perf.data")).unwrap();
    assert_eq!(shown(&scripts.run(&with_command(&["counter", "--"], &command))), "begin ['x']\ncalled\nend 11\n");
    assert!(!scripts.0.path().join("perf.data").exists());
}

#[test]
fn a_script_with_a_name_reads_the_recording_that_is_given_and_traces_nothing() {
    needs([Need::Tracefs, Need::Python]);
    let scripts = Scripts::new();
    stdout(&scripts.run(&with_command(&["record", "counter", "-o", "my.data", "--"], &calls(7))));
    for args in [
        &["-i", "my.data", "counter"][..],
        &["-i", "my.data", "report", "counter"],
        &["counter", "-i", "my.data"],
        &["counter", "--input", "my.data"],
    ] {
        assert_eq!(shown(&scripts.run(args)), "begin ['x']\ncalled\nend 7\n", "{args:?}");
    }
    let output = scripts.run(&["-i", "missing.data", "counter"]);
    assert!(!output.status.success() && said(&output).contains("missing.data"), "{output:?}");
}

#[test]
fn a_script_without_wrappers_runs_on_the_recording() {
    needs([Need::Tracefs, Need::Perf, Need::Python]);
    let scripts = Scripts::new();
    record(&scripts.0.path().join("perf.data"), &with_command(&["-e", EVENT, "--"], &calls(5)));
    fs::remove_dir_all(scripts.0.path().join("scripts/python/bin")).unwrap();
    assert_eq!(shown(&scripts.run(&["counter", "5"])), "begin ['5']\ncalled\nend 5\n");
}

/// A file in the current folder must not replace a program that the wrapper calls.
#[test]
fn wrappers_search_no_current_folder_if_there_is_no_path() {
    needs([Need::Python]);
    let scripts = Scripts::new();
    let own = scripts.0.path().join("own");
    fs::write(&own, "#!/bin/sh\necho mine\n").unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    let wrapper = scripts.0.path().join("scripts/python/bin/counter-report");
    fs::write(wrapper, "echo \"$PATH\" | grep -c :/usr/bin:\nown || echo not found\n").unwrap();
    let output = scripts.command(&["report", "counter"]).env_remove("PATH").output().unwrap();
    assert_eq!(stdout(&output), "1\nnot found\n");
}

/// Without a command, all CPUs are recorded until Ctrl-C. In this test, only perf-prof gets the signal, and not its
/// process group.
#[test]
fn ctrl_c_ends_both_wrappers_and_the_script_prints_its_result() {
    needs([Need::Tracefs, Need::Python]);
    let scripts = Scripts::new();
    for name in ["counter", "counttop"] {
        let mut running = scripts.command(&[name]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().starts_with("begin ["));
        let mut caller = Command::new("python3");
        let caller = caller.args(["-c", "import os, time\nwhile 1: os.getppid(); time.sleep(0.001)"]);
        let caller = Killed(caller.spawn().unwrap());
        assert_eq!(lines.next().unwrap().unwrap(), "called");
        // SAFETY: the child was not waited for.
        unsafe { libc::kill(running.id() as i32, libc::SIGINT) };
        let end = lines.next();
        drop(caller);
        assert!(end.unwrap().unwrap().starts_with("end "));
        assert_eq!(running.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn scripts_run_on_live_events() {
    needs([Need::Tracefs, Need::Python]);
    let scripts = Scripts::new();
    let (script, command) = (scripts.script(), calls(13));
    let script = script.to_str().unwrap();
    let live =
        |words: &[&str]| shown(&scripts.run(&with_command(&[&["-s", script, "-e", EVENT], words].concat(), &command)));
    assert_eq!(live(&["--"]), "begin []\ncalled\nend 13\n");
    assert_eq!(live(&["5", "-v", "--"]), "begin ['5', '-v']\ncalled\nend 13\n");
    assert_eq!(live(&["--filter", "common_pid==0", "--"]), "begin []\nend 0\n");
    // All CPUs are traced while the command runs, so other tasks may make calls too.
    let printed = live(&["-a", "--"]);
    let end = printed.strip_prefix("begin []\ncalled\nend ").unwrap_or_else(|| panic!("{printed}"));
    assert!(end.trim().parse::<u32>().unwrap() >= 13, "{printed}");
}

/// No event happens, and only a thread of the script runs. The thread itself sends the signal of Ctrl-C.
#[test]
fn a_thread_of_a_script_runs_while_live_events_are_awaited() {
    needs([Need::Tracefs, Need::Python]);
    let scripts = Scripts::new();
    let script = "
import os, signal, threading, time
def trace_begin():
    def run():
        for _ in range(3):
            time.sleep(0.01)
            print('thread', flush=True)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=run).start()
def trace_unhandled(*all): pass
def trace_end(): print('end')
";
    fs::write(scripts.0.path().join("thread.py"), script).unwrap();
    let output = scripts.run(&["-s", "thread.py", "-e", EVENT, "--filter", "common_pid==0"]);
    assert_eq!(stdout(&output), "thread\nthread\nthread\nend\n", "{}", said(&output));
}

#[test]
fn ctrl_c_ends_live_events_and_the_script_prints_its_result() {
    needs([Need::Tracefs, Need::Python]);
    let scripts = Scripts::new();
    let script = scripts.script();
    let mut live = scripts.command(&["-s", script.to_str().unwrap(), "-e", EVENT]);
    let mut running = live.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "begin []");
    let mut caller = Command::new("python3");
    let caller = caller.args(["-c", "import os, time\nwhile 1: os.getppid(); time.sleep(0.001)"]).spawn().unwrap();
    let caller = Killed(caller);
    assert_eq!(lines.next().unwrap().unwrap(), "called");
    // SAFETY: the child was not waited for.
    unsafe { libc::kill(running.id() as i32, libc::SIGINT) };
    let end = lines.next();
    drop(caller);
    let calls: u32 = end.unwrap().unwrap().strip_prefix("end ").unwrap().parse().unwrap();
    assert!(calls > 0 && running.wait().unwrap().code() == Some(0));
}

#[test]
fn a_template_is_written_for_a_recording_and_runs_on_it() {
    needs([Need::Tracefs, Need::Perf, Need::Python]);
    let scripts = Scripts::new();
    record(&scripts.0.path().join("perf.data"), &with_command(&["-e", EVENT, "--"], &calls(3)));
    for (spec, file) in [("python", "perf-script.py"), ("python:x.py", "x.py"), ("y.py", "y.py")] {
        let output = scripts.run(&["-g", spec]);
        stdout(&output);
        assert_eq!(said(&output), format!("generated Python script: {file}\n"));
        let text = stdout(&scripts.run(&["-s", file]));
        assert_eq!(text.matches("syscalls__sys_enter_getppid").count(), 3, "{text}");
    }
    // If the recording is wrong, the file is not changed.
    fs::write(scripts.0.path().join("y.py"), "kept").unwrap();
    assert_eq!(scripts.run(&["-i", "y.py", "-g", "y.py"]).status.code(), Some(1));
    assert_eq!(fs::read_to_string(scripts.0.path().join("y.py")).unwrap(), "kept");
}

/// Another user may have put the link into a folder of all users.
#[test]
fn no_template_is_written_through_a_link_with_the_usual_name() {
    needs([Need::Tracefs, Need::Python]);
    let scripts = Scripts::new();
    let path = |name: &str| scripts.0.path().join(name);
    record_here(&path("perf.data"), &["-e", EVENT, "--", "true"]);
    fs::write(path("victim"), "kept").unwrap();
    for target in ["victim", "new"] {
        symlink(target, path("perf-script.py")).unwrap();
        let refused = scripts.run(&["-g", "python"]);
        assert!(said(&refused).starts_with("perf-prof: perf-script.py exists already: remove it, or "), "{refused:?}");
        assert_eq!(refused.status.code(), Some(1));
        fs::remove_file(path("perf-script.py")).unwrap();
    }
    assert!(fs::read(path("victim")).unwrap() == b"kept" && !path("new").exists());
    // A file that the user names is overwritten, as by perf.
    stdout(&scripts.run(&["-g", "python"]));
    stdout(&scripts.run(&["-g", "python:perf-script.py"]));
}

#[test]
fn errors_name_what_is_wrong() {
    needs([Need::Python]);
    let scripts = Scripts::new();
    fs::write(scripts.0.path().join("x.py"), "").unwrap();
    let fifo = std::ffi::CString::new(scripts.0.path().join("fifo").into_os_string().into_encoded_bytes()).unwrap();
    // SAFETY: the path ends with a NUL.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    for (args, text) in [
        (&["nonexistent"][..], "`nonexistent` is no script"),
        (&["scripts"], "to select a recording, use -i: `-i scripts`"),
        (&["record", "nonexistent"], "`nonexistent` is neither the file nor the name of a script"),
        (&["report", "../counter"], "`../counter` is neither the file nor the name of a script"),
        (&["record"], "record needs the name of a script"),
        (&["needy"], "the script `needy` needs arguments: <comm>"),
        (&["-i", "x.data", "record", "counter"], "`record counter -o FILE` says where"),
        (&["-i", "x.data", "-e", "a:b"], "`perf-prof trace -e a:b --input x.data` prints these events of a recording"),
        (&["-s", "nonexistent.py"], "cannot open the script nonexistent.py"),
        (&["-s", "fifo"], "cannot open the script fifo: not a regular file"),
        (&["-s", "."], "cannot open the script .: not a regular file"),
        (&["-s", "perl:x.pl"], "`perl` is not a language of scripts"),
        (&["-g", "perl"], "`perl` is no Python script"),
        (&["-s", "x.py", "--bogus"], "unexpected argument '--bogus'"),
        (&["-s", "x.py", "-e", "a:b", "-i", "x"], "-e and -i cannot be combined"),
        (&["-s", "x.py", "-e", "a:b", "-c", "sh"], "-e and --comms cannot be combined"),
        (&["-s", "x.py", "-e", "a:b", "--time", "1,2"], "-e and --time cannot be combined"),
        (
            &["-s", "x.py", "-e", "a:b", "-C", "0", "--", "true"],
            "a command cannot be combined with -C, -p, -t or --cgroups",
        ),
        (&["-s", "x.py", "--max-stack", "x"], "`x` is not a number of frames"),
        (&["-s", "x.py", "--filter", "a > 1", "-i", "x"], "--filter 'a > 1' applies to live events only"),
        (&["--filter", "a"], "--filter a applies to live events only"),
        (&["-s", "x.py", "--filter", "a", "-e", "a:b"], "--filter a comes before the first -e"),
    ] {
        let output = scripts.run(args);
        assert!(output.status.code() == Some(2) && said(&output).contains(text), "{args:?}: {}", said(&output));
        assert!(output.stdout.is_empty() && !scripts.0.path().join("perf.data").exists(), "{args:?}");
    }
}

/// Runs perf-prof under the name `perf`.
fn as_perf(folder: &Path, args: &[&str]) -> Output {
    let perf = folder.join("perf");
    if !perf.exists() {
        symlink(tested_program(), &perf).unwrap();
    }
    Command::new(perf).args(args).current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn under_the_name_perf_options_that_change_nothing_are_accepted() {
    needs([Need::Tracefs, Need::Perf, Need::Python]);
    let dir = tempfile::tempdir().unwrap();
    let args = ["record", "-R", "-T", "-B", "-N", "-q", "-m", "64", "-e", EVENT, "--", "true"];
    let output = as_perf(dir.path(), &args);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", said(&output));
    assert_eq!(fs::metadata(dir.path().join("perf.data")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(stdout(&as_perf(dir.path(), &["report", "--header-only"])).contains("# cmdline : "));
    // Without -e, the event of perf is recorded.
    let output = as_perf(dir.path(), &["record", "-q", "-o", "default.data", "--", "true"]);
    assert!(output.status.success(), "{}", said(&output));
    let attrs = stdout(&as_perf(dir.path(), &["evlist", "-v", "-i", "default.data"]));
    assert!(attrs.contains(" samples per second;") && !attrs.contains(" 997 samples"), "{attrs}");
    let events = stdout(&as_perf(dir.path(), &["evlist", "-i", "default.data"]));
    assert!(events.starts_with("cycles\n") || events.starts_with("cpu-clock\n"), "{events}");
    // The recording contains no hardware traces, so the option for decoding them has no effect.
    let of_script = stdout(&as_perf(dir.path(), &["script", "--itrace=i10us", "-i", "default.data"]));
    assert_eq!(of_script, stdout(&as_perf(dir.path(), &["script", "-i", "default.data"])));
    stdout(&as_perf(dir.path(), &["report", "--itrace", "-i", "default.data"]));
    let exec_path = Command::new("perf").arg("--exec-path").output().unwrap();
    assert_eq!(stdout(&as_perf(dir.path(), &["--exec-path"])), stdout(&exec_path));
    // perf exits with 129 after wrong usage. Under the name perf-prof, none of this applies.
    let output = as_perf(dir.path(), &["record", "--bogus", "--", "true"]);
    assert!(output.status.code() == Some(129) && said(&output).contains("'--bogus'"), "{}", said(&output));
    let output = perf_prof(&["record", "-R", "-e", EVENT, "--", "true"]).output().unwrap();
    assert!(output.status.code() == Some(2) && said(&output).contains("'-R'"), "{}", said(&output));
}
