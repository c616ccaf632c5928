//! Which file a MODULE argument loads, and which names and paths the script sees.

use std::{fs, os::unix::fs::PermissionsExt};

use expect_test::expect;

use crate::harness::{
    machine::{Need, needs},
    script::{Outcome, Run, check, prints},
};

/// A script that prints its name, its file, its arguments and its folder in `sys.path` when it is loaded.
const WHO: &str = "
import sys
print(__name__, __file__, sys.argv, sys.path[0])
def __sample__(event): pass
";

fn who() -> Run {
    Run::script(WHO).call_event().workload("calls 1")
}

#[test]
fn a_script_by_relative_path() {
    prints(
        who().args(["a", "--foo", "-x"]),
        expect![[r#"
            s DIR/s.py ['s.py', 'a', '--foo', '-x'] DIR
        "#]],
    );
}

#[test]
fn a_script_in_another_folder() {
    prints(
        who().file("sub/t.py", WHO).module("./sub/t.py"),
        expect![[r#"
            t DIR/sub/t.py ['./sub/t.py'] DIR/sub
        "#]],
    );
}

#[test]
fn a_script_by_absolute_path() {
    let run = who();
    let path = run.path("s.py");
    prints(
        run.module(path),
        expect![[r#"
        s DIR/s.py ['DIR/s.py'] DIR
    "#]],
    );
}

#[test]
fn a_script_without_extension() {
    prints(
        who().file("tool", WHO).module("tool"),
        expect![[r#"
        tool DIR/tool ['tool'] DIR
    "#]],
    );
}

#[test]
fn a_script_with_dots_in_its_name() {
    prints(
        who().file("a.b.py", WHO).module("a.b.py"),
        expect![[r#"
        a.b DIR/a.b.py ['a.b.py'] DIR
    "#]],
    );
}

#[test]
fn a_script_with_a_blank_and_umlauts_in_its_name() {
    prints(
        who().file("zähler 1.py", WHO).module("zähler 1.py"),
        expect![[r#"
        zähler 1 DIR/zähler 1.py ['zähler 1.py'] DIR
    "#]],
    );
}

#[test]
fn a_script_that_is_named_like_a_module_of_the_standard_library() {
    // Other code that imports `os` still gets the module of the standard library.
    let text = "import tempfile, os\nprint(__file__, os is not None, os.path.sep)\ndef __sample__(event): pass\n";
    prints(
        who().file("os.py", text).module("os.py"),
        expect![[r#"
        DIR/os.py True /
    "#]],
    );
}

#[test]
fn a_script_that_is_named_like_an_installed_module() {
    prints(
        who().file("pip.py", WHO).module("pip.py"),
        expect![[r#"
        pip DIR/pip.py ['pip.py'] DIR
    "#]],
    );
}

#[test]
fn a_module_by_name_in_the_current_directory() {
    prints(
        who().file("mine.py", WHO).module("mine"),
        expect![[r#"
        mine DIR/mine.py ['mine'] DIR
    "#]],
    );
}

#[test]
fn a_package_by_name() {
    prints(
        who().file("pack/__init__.py", "").file("pack/part.py", WHO).module("pack.part"),
        expect![[r#"
        pack.part DIR/pack/part.py ['pack.part'] DIR
    "#]],
    );
}

#[test]
fn a_module_by_name_in_sys_path() {
    let run = who().file("lib/elsewhere.py", WHO).module("elsewhere");
    let path = run.path("lib");
    prints(
        run.env("PYTHONPATH", path),
        expect![[r#"
        elsewhere DIR/lib/elsewhere.py ['elsewhere'] DIR
    "#]],
    );
}

#[test]
fn modules_beside_the_script_can_be_imported() {
    let text = "import beside\nprint(beside.__file__)\ndef __sample__(event): pass\n";
    prints(
        who().file("sub/t.py", text).file("sub/beside.py", "").module("sub/t.py"),
        expect![[r#"
        DIR/sub/beside.py
    "#]],
    );
}

#[test]
fn modules_beside_a_linked_script_can_be_imported() {
    let text = "import beside\nprint(beside.__file__)\ndef __sample__(event): pass\n";
    let run = who().file("sub/t.py", text).file("sub/beside.py", "").module("link");
    std::os::unix::fs::symlink(run.path("sub/t.py"), run.path("link")).unwrap();
    prints(
        run,
        expect![[r#"
        DIR/sub/beside.py
    "#]],
    );
}

#[test]
fn a_main_guard_does_not_run() {
    let text = "if __name__ == '__main__': print('guarded')\nprint('loaded')\ndef __sample__(event): pass\n";
    prints(
        Run::script(text).call_event().workload("calls 1"),
        expect![[r#"
        loaded
    "#]],
    );
}

#[test]
fn no_bytecode_is_left_beside_the_script() {
    needs([Need::Tracefs]);
    let run = who().file("beside.py", "").file("s.py", "import beside\ndef __sample__(event): pass\n");
    assert_eq!(run.run().status, 0);
    let by_name = who().module("s");
    assert_eq!(by_name.run().status, 0);
    for dir in [&run.dir, &by_name.dir] {
        assert!(!dir.path().join("__pycache__").exists());
    }
}

/// `import` runs a `.pyc` that claims to need no check, whatever the source is.
#[test]
fn a_compiled_file_beside_the_script_does_not_run_in_its_place() {
    needs([Need::Tracefs]);
    let plant = "
import importlib.util, os
from importlib._bootstrap_external import _code_to_hash_pyc
cached = importlib.util.cache_from_source('s.py')
os.makedirs(os.path.dirname(cached))
code = compile('print(\"planted\")\\ndef __sample__(event): pass', 's.py', 'exec')
open(cached, 'wb').write(_code_to_hash_pyc(code, bytes(8), False))
raise SystemExit(0)
";
    let text = "print('source')\ndef __sample__(event): pass\n";
    let planted = Run::script(text).file("plant.py", plant).call_event().module("plant.py");
    assert_eq!(planted.run().status, 0);
    assert!(planted.path("__pycache__").is_dir());
    let outcome = planted.module("s.py").workload("calls 1").run();
    assert_eq!((outcome.stdout.as_str(), outcome.status), ("source\n", 0), "{}", outcome.stderr);
}

#[test]
fn a_script_that_others_can_change_has_a_warning() {
    needs([Need::Tracefs]);
    let run = mute();
    let set = |path: &str, mode: u32| {
        fs::set_permissions(run.path(path), fs::Permissions::from_mode(mode)).unwrap();
        run.run().complaints()
    };
    let warning = |path: &str| {
        format!(
            "perf-prof: warning: other users can change {path}: what they write there can run as part of the script\n"
        )
    };
    assert_eq!(set("", 0o755), "");
    assert_eq!(set("", 0o1777), "");
    assert_eq!(set("s.py", 0o666), warning("DIR/s.py"));
    // With sudo, the file of the user who calls sudo causes no warning. Only root can give a file to another user.
    // SAFETY: geteuid takes no pointer.
    if unsafe { libc::geteuid() } == 0 {
        let others = mute();
        std::os::unix::fs::chown(others.path("s.py"), Some(65534), None).unwrap();
        assert_eq!(others.run().complaints(), warning("DIR/s.py"));
        assert_eq!(others.env("SUDO_UID", "65534").run().complaints(), "");
    }
    let quiet = mute().options(["-q"]);
    fs::set_permissions(quiet.path("s.py"), fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(quiet.run().stderr, "");
}

#[test]
fn a_module_in_a_folder_of_all_users_does_not_run_instead_of_pythons_own() {
    let text = "import json, helper\nprint(json.dumps([helper.NAME]))\ndef __sample__(event): pass\n";
    let run = |mode: u32, owner: u32| {
        let run = Run::script(text).call_event().workload("calls 1");
        let run = run.file("json.py", "print('planted')\ndumps = str\n").file("helper.py", "NAME = 'beside'");
        fs::set_permissions(run.path(""), fs::Permissions::from_mode(mode)).unwrap();
        if owner != 0 {
            std::os::unix::fs::chown(run.path("helper.py"), Some(owner), None).unwrap();
        }
        run
    };
    // As in python3, the script's own folder comes first in `sys.path`.
    assert!(loaded(run(0o755, 0)).stdout.starts_with("planted\n"));
    let own = loaded(run(0o1777, 0));
    assert_eq!((own.stdout.as_str(), own.complaints().as_str()), ("[\"beside\"]\n", ""));
    let warning = "perf-prof: warning: the script imports DIR/helper.py, which other users can change\n";
    assert_eq!(loaded(run(0o777, 0)).complaints(), warning);
    // SAFETY: the call has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        assert_eq!(loaded(run(0o1777, 65534)).complaints(), warning);
    }
}

fn loaded(run: Run) -> Outcome {
    needs([Need::Tracefs]);
    let outcome = run.run();
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    outcome
}

/// A script that prints nothing.
fn mute() -> Run {
    Run::script("def __sample__(event): pass\n").call_event().workload("calls 1")
}

#[test]
fn the_loaded_module_is_named_on_stderr() {
    let outcome = loaded(mute());
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("", "Loaded module: DIR/s.py\n"));
}

#[test]
fn quiet_does_not_name_the_loaded_module() {
    let outcome = loaded(mute().options(["-q"]));
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("", ""));
}

#[test]
fn compat_names_the_loaded_module_on_stdout() {
    let outcome = loaded(mute().env("PERF_PROF_COMPAT", "1"));
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("Loaded module: DIR/s.py\n", ""));
}

#[test]
fn a_file_that_is_not_there() {
    check(
        mute().module("no/such.py"),
        expect![[r#"
        --- stderr
        perf-prof: cannot load 'no/such.py': no such file
        --- status 1
    "#]],
    );
}

#[test]
fn a_module_that_is_not_there() {
    check(
        mute().module("nosuchmodule"),
        expect![[r#"
        --- stderr
        perf-prof: cannot load 'nosuchmodule': no such file, and no module 'nosuchmodule' in the current directory or sys.path (for the packages of a venv, use --python VENV)
        --- status 1
    "#]],
    );
}

#[test]
fn a_folder_is_no_script() {
    check(
        mute().file("sub/x", "").module("./sub"),
        expect![[r#"
        --- stderr
        perf-prof: cannot load './sub': it is a directory
        --- status 1
    "#]],
    );
}

#[test]
fn a_syntax_error_shows_its_place() {
    check(
        mute().file("s.py", "def __sample__(event)\n    pass\n"),
        expect![[r#"
            --- stderr
              File "DIR/s.py", line 1
                def __sample__(event)
            SyntaxError: expected ':'
            perf-prof: cannot load 's.py': it raised SyntaxError (see above)
            --- status 1
        "#]],
    );
}

#[test]
fn an_import_that_fails_in_the_script_shows_the_users_frames_only() {
    check(
        mute().file("s.py", "import nosuchmodule\n"),
        expect![[r#"
        --- stderr
        Traceback (most recent call last):
          File "DIR/s.py", line 1, in <module>
            import nosuchmodule
        ModuleNotFoundError: No module named 'nosuchmodule'
        perf-prof: cannot load 's.py': it raised ModuleNotFoundError (see above); for the packages of a venv, use --python VENV
        --- status 1
    "#]],
    );
}

#[test]
fn a_script_that_exits_while_it_is_loaded() {
    check(
        mute().file("s.py", "import sys\nprint('usage: ...')\nsys.exit(3)\n"),
        expect![[r#"
        usage: ...
        --- status 3
    "#]],
    );
}

#[test]
fn an_argparse_error_of_the_script_gives_its_status() {
    let text = "import argparse\nargparse.ArgumentParser(prog='s').parse_args()\ndef __sample__(event): pass\n";
    check(
        mute().file("s.py", text).args(["--nope"]),
        expect![[r#"
        --- stderr
        usage: s [-h]
        s: error: unrecognized arguments: --nope
        --- status 2
    "#]],
    );
}

#[test]
fn a_module_by_name_that_fails_shows_the_users_frames_only() {
    check(
        mute().file("mine.py", "def f(): return 1 / 0\nf()\n").module("mine"),
        expect![[r#"
            --- stderr
            Traceback (most recent call last):
              File "DIR/mine.py", line 2, in <module>
                f()
              File "DIR/mine.py", line 1, in f
                def f(): return 1 / 0
            ZeroDivisionError: division by zero
            perf-prof: cannot load 'mine': it raised ZeroDivisionError (see above)
            --- status 1
        "#]],
    );
}

#[test]
fn a_missing_import_of_a_module_by_name_is_named() {
    check(
        mute().file("mine.py", "import nosuchmodule\n").module("mine"),
        expect![[r#"
        --- stderr
        Traceback (most recent call last):
          File "DIR/mine.py", line 1, in <module>
            import nosuchmodule
        ModuleNotFoundError: No module named 'nosuchmodule'
        perf-prof: cannot load 'mine': it raised ModuleNotFoundError (see above); for the packages of a venv, use --python VENV
        --- status 1
    "#]],
    );
}
