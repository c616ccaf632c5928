//! The modules that `perf script` scripts import. Core, Util and EventClass give the same results as in perf, also if
//! perf is not installed. The user's own modules come first.

use std::{fs, path::Path, process::Command};

use expect_test::{Expect, expect};
use perf_prof_format::abi::*;

use crate::harness::{
    machine::{Need, needs, skip},
    made::{Made, MadeAttr},
    recording::{Folder, record},
    run::{perf_prof, stdout},
};

/// A script that calls all functions of the modules.
const CALLS: &str = include_str!("modules.py");

/// The results of the calls in perf 6.1, without the lines in which its Util recommends the module `audit`. The test
/// `the_expected_results_are_those_of_perf` compares them with an installed perf.
const EXPECTED: &str = include_str!("modules.expected");

/// The folder below PERF_EXEC_PATH that contains perf's modules.
const FOLDER_OF_PERF: &str = "scripts/python/Perf-Trace-Util/lib/Perf/Trace";

/// The lines at the start of scripts.
const START: &str = "import os, sys
sys.path.append(os.environ['PERF_EXEC_PATH'] + '/scripts/python/Perf-Trace-Util/lib/Perf/Trace')
";

/// A script, files beside it, and a recording without samples.
struct Setup(Folder);

impl Setup {
    fn new(script: &str) -> Setup {
        let folder = Folder::new();
        folder.write("s.py", script.as_bytes());
        Made::new(MadeAttr::new(PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME)).write(&folder);
        Setup(folder)
    }

    fn file(self, name: &str, text: &str) -> Setup {
        fs::create_dir_all(self.0.path(name).parent().unwrap()).unwrap();
        self.0.write(name, text.as_bytes());
        self
    }

    /// Returns the command that runs the script, with no perf in PATH.
    fn command(&self) -> Command {
        needs([Need::Python]);
        let mut command = perf_prof(&["script", "-i"]);
        command.arg(self.0.path("made.data")).arg("-s").arg(self.0.path("s.py"));
        command.env("PATH", "/nowhere").env_remove("PERF_EXEC_PATH");
        command
    }

    fn prints(&self, expected: Expect) {
        let folder = self.0.path("").to_str().unwrap().trim_end_matches('/').to_owned();
        expected.assert_eq(&stdout(&self.command().output().unwrap()).replace(&folder, "DIR"));
    }
}

#[test]
fn the_functions_give_the_results_of_perf() {
    assert_eq!(stdout(&Setup::new(CALLS).command().output().unwrap()), EXPECTED);
}

#[test]
fn the_expected_results_are_those_of_perf() {
    needs([Need::Perf]);
    let built = stdout(&Command::new("perf").args(["version", "--build-options"]).output().unwrap());
    if !built.contains("libpython: [ on") {
        skip(Need::Perf, "this perf runs no Python scripts");
    }
    let setup = Setup::new(CALLS);
    let recording = setup.0.path("perf.data");
    record(&recording, &["-e", "dummy", "--", "true"]);
    let mut command = Command::new("perf");
    let output = command.args(["script", "-i"]).arg(&recording).arg("-s").arg(setup.0.path("s.py")).output().unwrap();
    let printed = stdout(&output);
    let results = printed.find("# nested dicts").unwrap();
    assert_eq!(&printed[results..], EXPECTED);
}

#[test]
fn system_calls_have_names_without_another_module() {
    let script = format!(
        "{START}from Util import syscall_name
print([syscall_name(number) for number in (-1, 99999, 2**70, 'x', None, 1.5)])
import perf_prof
print([syscall_name(perf_prof.syscall_nr(name)) for name in ('read', 'futex', 'openat')])
"
    );
    Setup::new(&script).prints(expect![[r#"
        ['-1', '99999', '1180591620717411303424', 'x', 'None', '1.5']
        ['read', 'futex', 'openat']
    "#]]);
}

#[test]
fn modules_of_the_user_come_first_and_those_of_perf_last() {
    let script = format!(
        "{START}import Core, EventClass, Util
print(Core.whose, os.path.basename(Core.__file__))
print([hasattr(module, 'whose') for module in (EventClass, Util)])
print(EventClass.__name__, EventClass.__spec__.origin, sys.modules['EventClass'] is EventClass)
"
    );
    let of_perf = |module: &str| format!("perf/{FOLDER_OF_PERF}/{module}.py");
    let setup = Setup::new(&script)
        .file("Core.py", "whose = 'of the user'\n")
        .file("EventClass/only_a_folder", "")
        .file(&of_perf("Core"), "whose = 'of perf'\n")
        .file(&of_perf("EventClass"), "whose = 'of perf'\n")
        .file(&of_perf("Util"), "whose = 'of perf'\n");
    let mut command = setup.command();
    command.env("PERF_EXEC_PATH", setup.0.path("perf"));
    expect![[r#"
        of the user Core.py
        [False, False]
        EventClass <perf_prof EventClass.py> True
    "#]]
    .assert_eq(&stdout(&command.output().unwrap()));
}

#[test]
fn other_modules_of_perf_are_found_in_its_folder() {
    let script = format!("{START}import SchedGui, Core\nprint(SchedGui.whose, hasattr(Core, 'whose'))\n");
    let of_perf = |module: &str| format!("perf/{FOLDER_OF_PERF}/{module}.py");
    let setup = Setup::new(&script)
        .file(&of_perf("Core"), "whose = 'of perf'\n")
        .file(&of_perf("SchedGui"), "whose = 'of perf'\n");
    let mut command = setup.command();
    command.env("PERF_EXEC_PATH", setup.0.path("perf"));
    assert_eq!(stdout(&command.output().unwrap()), "of perf False\n");
}

#[test]
fn the_folder_of_perf_is_always_in_the_environment() {
    let setup = Setup::new("import os\nprint(os.environ['PERF_EXEC_PATH'], os.getenv('PERF_EXEC_PATH'))\n");
    let shown = |command: &mut Command| stdout(&command.output().unwrap());
    assert_eq!(shown(setup.command().env("PERF_EXEC_PATH", "/a")), "/a /a\n");
    for installed in ["libexec/perf-core", "lib/perf-core"] {
        let setup = Setup::new("import os\nprint(os.environ['PERF_EXEC_PATH'])\nos.system('echo $PERF_EXEC_PATH')\n")
            .file("prefix/bin/perf", "")
            .file(&format!("prefix/{installed}/scripts/python/x.py"), "");
        let expected = setup.0.path("prefix").join(installed).to_str().unwrap().to_owned();
        // The shell is started by its absolute path, because it is not in this PATH.
        let mut command = setup.command();
        command.env("PATH", setup.0.path("prefix/bin")).env("PERF_EXEC_PATH", "");
        assert_eq!(stdout(&command.output().unwrap()).lines().next(), Some(&expected[..]));
        assert!(shown(&mut command).lines().all(|line| line == expected), "{}", shown(&mut command));
    }
    let without = shown(&mut setup.command());
    let path = without.split(' ').next().unwrap();
    assert!(Path::new(path).is_absolute() && path.ends_with("/perf-core"), "{without}");
}

#[test]
fn tracebacks_show_the_lines_of_the_modules() {
    let script = format!(
        "{START}import traceback, linecache, inspect
from Util import avg
try:
    avg(1, 0)
except ZeroDivisionError:
    lines = traceback.format_exc().splitlines()
    print([line.strip() for line in lines if 'Util' in line or 'total' in line])
linecache.checkcache()
print(linecache.getline('<perf_prof Util.py>', avg.__code__.co_firstlineno).strip())
print(inspect.getsource(avg).splitlines()[-1].strip())
"
    );
    let output = stdout(&Setup::new(&script).command().output().unwrap());
    let lines: Vec<&str> = output.lines().collect();
    assert!(lines[0].starts_with("['File \"<perf_prof Util.py>\", line "), "{output}");
    assert!(lines[0].ends_with(", in avg', 'return total / n']"), "{output}");
    assert_eq!(lines[1..], ["def avg(total: float, n: float) -> float:", "return total / n"]);
}

#[test]
fn files_beside_the_script_do_not_replace_modules_of_python_that_perf_prof_imports() {
    let script = format!("{START}import Core, os\nprint(type(Core.autodict()).__name__)\n");
    let setup = ["linecache", "tokenize", "importlib", "collections"]
        .into_iter()
        .fold(Setup::new(&script), |setup, name| setup.file(&format!("{name}.py"), "raise SystemExit(7)\n"));
    assert_eq!(stdout(&setup.command().output().unwrap()), "defaultdict\n");
}
