//! Checks that the paths of system calls equal the paths that procfs shows at the time of the call.

use std::{fs, path::Path};

use crate::harness::{
    compile::compile,
    machine::{Need, needs, needs_paths},
    recording::Folder,
    script::{Outcome, Run},
};

const CALLS: &str = "syscall/name=truncate|ftruncate|faccessat2|close|read,str/";

/// A script that prints the paths of the calls that the program marks.
const SCRIPT: &str = "
def syscall(e):
    number = lambda word: (word + 2**63) % 2**64 - 2**63
    is_marked = {
        'truncate': number(e.args[1]) == -7, 'ftruncate': number(e.args[1]) == -7, 'faccessat2': e.args[3] == 0x7000,
        'close': e.args[0] == 400, 'read': e.args[2] == 77,
    }
    if is_marked[e.name]: print(e.name, e.path)
";

/// Compiles the program with these compiler options.
fn compiled(folder: &Folder, options: &[&str]) -> String {
    needs([Need::Compilers]);
    let options = [&["-O1", "-pthread"], options].concat();
    let program = compile(folder.path("").as_path(), "program", include_str!("paths.c"), &options);
    program.to_str().unwrap().to_owned()
}

/// Runs the program in a folder. Returns the outcome, the expected output, and the run.
fn outcome(program: &str, threads: &str, options: &[&str]) -> (Outcome, String, Run) {
    let run = Run::script(SCRIPT).event(CALLS).options(["-q", "--order"]).options(options);
    let folder = run.path("");
    let folder = folder.to_str().unwrap().to_owned();
    let run = run.exec([program, &folder, threads]);
    let outcome = run.run();
    let expected = in_folder(&run, &fs::read_to_string(Path::new(&folder).join("expected")).unwrap());
    assert!(expected.lines().count() > 25, "{expected}\n{}", outcome.stderr);
    (outcome, expected, run)
}

/// Replaces the run's folder in a text, as the outcome of a run does.
fn in_folder(run: &Run, text: &str) -> String {
    text.replace(run.path("x").parent().unwrap().to_str().unwrap(), "DIR")
}

#[test]
fn a_call_has_the_path_that_procfs_shows() {
    needs_paths();
    for options in [&[][..], &["-static"]] {
        let folder = Folder::new();
        let program = compiled(&folder, options);
        for in_kernel in ["always", "never"] {
            let (outcome, expected, _) = outcome(&program, "alone", &["--in-kernel", in_kernel]);
            assert_eq!(outcome.stdout, expected, "{options:?} {in_kernel} {}", outcome.stderr);
        }
    }
}

/// Other threads open and close files, so descriptors are reused all the time.
#[test]
fn a_call_of_one_of_several_threads_has_the_path_of_its_own_file() {
    needs_paths();
    let folder = Folder::new();
    let program = compiled(&folder, &[]);
    let (outcome, expected, _) = outcome(&program, "threads", &["--in-kernel", "always"]);
    // Another thread replaces the file while the call reads from it. So the path is not known at the end of the call.
    let (replaced, others): (Vec<&str>, Vec<&str>) = outcome.stdout.lines().partition(|line| line.starts_with("read"));
    assert_eq!(replaced, ["read None"], "{}", outcome.stderr);
    assert_eq!(others, expected.lines().collect::<Vec<_>>(), "{}", outcome.stderr);
}

#[test]
fn a_replay_has_the_paths_that_were_recorded() {
    needs_paths();
    let folder = Folder::new();
    let program = compiled(&folder, &[]);
    let (outcome, expected, run) = outcome(&program, "alone", &["--record", "r.data"]);
    assert_eq!(outcome.stdout, expected, "{}", outcome.stderr);
    let path = run.path("r.data");
    let replayed = Run::script(SCRIPT).event(CALLS).options(["-q", "--order", "--input", path.to_str().unwrap()]).run();
    assert_eq!(in_folder(&run, &replayed.stdout), expected, "{}", replayed.stderr);
}
