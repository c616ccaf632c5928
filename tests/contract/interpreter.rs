//! Which Python runs the script: the order of the choice, virtual environments and their packages, Cython.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use expect_test::expect;

use crate::harness::{
    machine::{Need, needs, skip},
    run::tested_program,
    script::{Run, prints},
};

/// Returns the Python that perf-prof was built for, and its version.
fn built_for() -> (PathBuf, String) {
    let mut command = Command::new(tested_program());
    for variable in ["PERF_PROF_PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX"] {
        command.env_remove(variable);
    }
    let output = command.args(["-V", "-v"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    // The line may say after the path where the path comes from.
    let python = line("python:").split(" (").next().unwrap().into();
    let version = line("version:");
    (python, version.rsplit_once('.').unwrap().0.to_owned())
}

/// Returns a virtual environment with the package `tiny`, which is created once and kept with the build.
fn venv() -> &'static Path {
    static VENV: OnceLock<PathBuf> = OnceLock::new();
    VENV.get_or_init(|| {
        let (python, version) = built_for();
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("venv-{version}"));
        // pip writes this file last.
        let record = dir.join(format!("lib/python{version}/site-packages/tiny-1.0.dist-info/RECORD"));
        if !record.exists() {
            let _ = fs::remove_dir_all(&dir);
            succeeds(Command::new(python).args(["-m", "venv"]).arg(&dir));
            let wheel = dir.join("tiny-1.0-py3-none-any.whl");
            write_wheel(&wheel);
            succeeds(Command::new(dir.join("bin/pip")).args(["install", "--quiet", "--no-index"]).arg(wheel));
        }
        dir
    })
}

fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A wheel is a zip file with a module and three files about it.
fn write_wheel(path: &Path) {
    const MAKE: &str = "
import sys, zipfile
files = {
    'tiny.py': 'ANSWER = 42\\n',
    'tiny-1.0.dist-info/METADATA': 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n',
    'tiny-1.0.dist-info/WHEEL': 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n',
}
record = ''.join(f'{name},,\\n' for name in [*files, 'tiny-1.0.dist-info/RECORD'])
with zipfile.ZipFile(sys.argv[1], 'w') as wheel:
    for name, text in {**files, 'tiny-1.0.dist-info/RECORD': record}.items():
        wheel.writestr(name, text)
";
    succeeds(Command::new(built_for().0).args(["-c", MAKE]).arg(path));
}

const IMPORTS: &str = "
import sys, tiny
print(tiny.ANSWER, tiny.__file__.startswith(sys.prefix), sys.prefix != sys.base_prefix, sys.executable.startswith(sys.prefix))
def __sample__(event): pass
";

fn imports() -> Run {
    Run::script(IMPORTS).call_event().workload("exit 0")
}

#[test]
fn packages_of_an_activated_venv_import() {
    needs([Need::EmbeddedPython, Need::Tracefs]);
    let python = venv().join("bin/python");
    let options = |run: Run, path: &Path| run.options([Path::new("--python"), path]);
    for run in [
        imports().env("VIRTUAL_ENV", venv()),
        imports().env("CONDA_PREFIX", venv()),
        imports().env("PERF_PROF_PYTHON", venv()),
        imports().env("PERF_PROF_PYTHON", &python),
        options(imports(), venv()),
        options(imports(), &python),
        imports().empty_env().env("VIRTUAL_ENV", venv()),
        options(imports().empty_env(), venv()),
    ] {
        let outcome = run.run();
        assert_eq!((outcome.complaints().as_str(), outcome.status), ("", 0));
        assert_eq!(outcome.stdout, "42 True True True\n");
    }
}

#[test]
fn packages_of_a_venv_do_not_import_without_it() {
    needs([Need::Tracefs]);
    let outcome = imports().run();
    assert!(outcome.stderr.contains("No module named 'tiny'"), "{}", outcome.stderr);
    assert_eq!(outcome.status, 1);
}

#[test]
fn the_order_of_the_choice() {
    needs([Need::EmbeddedPython, Need::Tracefs]);
    // Each variable names a path that does not exist, so the error shows which variable was used.
    let names = ["CONDA_PREFIX", "VIRTUAL_ENV", "PERF_PROF_PYTHON"];
    for count in 1..=names.len() {
        let run = names[..count].iter().fold(imports(), |run, name| run.env(name, format!("/no/{name}")));
        let outcome = run.run();
        let taken = names[count - 1];
        assert_eq!(outcome.status, 1);
        assert!(
            outcome.stderr.starts_with(&format!("perf-prof: {taken}: no usable Python at '/no/{taken}'")),
            "{}",
            outcome.stderr
        );
    }
    let run = names
        .iter()
        .fold(imports(), |run, name| run.env(name, format!("/no/{name}")))
        .options(["--python", "/no/option"]);
    assert!(run.run().stderr.starts_with("perf-prof: --python: no usable Python at '/no/option'"));
    // An empty variable counts as not set.
    let run = Run::script("def __sample__(event): pass\n").call_event().workload("exit 0").env("VIRTUAL_ENV", "");
    assert_eq!(run.run().status, 0);
}

#[test]
fn without_any_choice_the_python_is_the_one_perf_prof_was_built_for() {
    needs([Need::EmbeddedPython, Need::Tracefs]);
    let text = "
import sys
print(sys.executable, '%d.%d' % sys.version_info[:2])
def __sample__(event): pass
";
    let outcome = Run::script(text).call_event().workload("exit 0").empty_env().run();
    let (python, version) = built_for();
    assert_eq!(outcome.stdout, format!("{} {version}\n", python.display()), "{}", outcome.stderr);
}

#[test]
fn a_venv_of_another_minor_version_is_an_error_that_names_both() {
    needs([Need::EmbeddedPython, Need::Tracefs]);
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("bin")).unwrap();
    File::create(dir.path().join("bin/python3")).unwrap();
    fs::write(dir.path().join("pyvenv.cfg"), "home = /usr/bin\nversion = 3.2.1\n").unwrap();
    let outcome = imports().env("VIRTUAL_ENV", dir.path()).run();
    outcome.assert_civil();
    let version = built_for().1;
    let (path, text) = (dir.path().display(), &outcome.stderr);
    assert!(
        text.starts_with(&format!(
            "perf-prof: VIRTUAL_ENV: '{path}' is Python 3.2, but perf-prof is linked with Python {version}: "
        )),
        "{text}"
    );
    assert!(text.contains("PYO3_PYTHON="), "{text}");
    assert_eq!((outcome.status, text.lines().count()), (1, 1));
}

#[test]
fn the_package_of_another_python_says_how_it_is_built_for_this_one() {
    let (python, version) = built_for();
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let output = Command::new(python).args(["-c", "import perf_prof"]).env("PYTHONPATH", package).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let reason = format!("ImportError: this folder of perf_prof has no module for CPython {version}: ");
    assert!(said.contains(&reason) && said.contains("`python3 -m pip install .`"), "{said}");
    assert!(!said.contains("ModuleNotFoundError"), "{said}");
}

#[test]
fn the_version_with_v_names_the_libpython_and_the_prefix() {
    needs([Need::EmbeddedPython, Need::Tracefs]);
    let show = |env: &[(&str, &Path)]| {
        let output = Command::new(tested_program())
            .args(["-V", "-v"])
            .env_remove("VIRTUAL_ENV")
            .envs(env.iter().copied())
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let text = show(&[]);
    let version = built_for().1;
    assert!(text.starts_with(concat!("perf-prof ", env!("CARGO_PKG_VERSION"), "\n")), "{text}");
    for part in ["libpython", version.as_str()] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let text = show(&[("VIRTUAL_ENV", venv())]);
    assert!(text.contains(venv().to_str().unwrap()) && text.contains("VIRTUAL_ENV"), "{text}");
}

#[test]
fn multiprocessing_starts_the_users_python() {
    needs([Need::EmbeddedPython, Need::Tracefs]);
    let text = "
import multiprocessing, sys, work
def __init__():
    with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(work.answer, [1, 2]))
def __sample__(event): pass
";
    let run = Run::script(text).file("work.py", "import tiny\ndef answer(n): return n * tiny.ANSWER\n");
    prints(
        run.call_event().workload("exit 0").env("VIRTUAL_ENV", venv()),
        expect![[r#"
        [42, 84]
    "#]],
    );
}

#[test]
fn a_cython_module_by_file_and_by_name() {
    needs([Need::Tracefs]);
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cython-{}", built_for().1));
    let build = dir.join("build");
    let python = dir.join("venv/bin/python");
    if !dir.join("venv/bin/cythonize").exists() {
        let _ = fs::remove_dir_all(&dir);
        succeeds(Command::new(built_for().0).args(["-m", "venv"]).arg(dir.join("venv")));
        let install =
            Command::new(&python).args(["-m", "pip", "install", "--quiet", "cython", "setuptools"]).output().unwrap();
        if !install.status.success() {
            skip(Need::Pypi, String::from_utf8_lossy(&install.stderr));
        }
    }
    let source = "
import sys
cdef long calls = 0
def syscalls__sys_enter_getpgid(event):
    global calls
    calls += event.pid
def __exit__(): print(__name__, calls, sys.argv)
";
    fs::create_dir_all(&build).unwrap();
    fs::write(build.join("counter.pyx"), source).unwrap();
    let built = Command::new(dir.join("venv/bin/cythonize"))
        .args(["-i", "-3", "counter.pyx"])
        .current_dir(&build)
        .output()
        .unwrap();
    if !built.status.success() {
        skip(Need::Compilers, String::from_utf8_lossy(&built.stderr));
    }
    let entries = fs::read_dir(&build).unwrap().map(|entry| entry.unwrap().path());
    let library = entries.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "so")).unwrap();
    let code = fs::read(&library).unwrap();
    let run = |module: &str| {
        let run = Run::script("").file(library.file_name().unwrap(), &code).file("plain/counter.so", &code);
        run.module(module).call_event().workload("calls 4").args(["x"])
    };
    let full_name = library.file_name().unwrap().to_str().unwrap().to_owned();
    for module in [full_name.as_str(), "counter", "plain/counter.so"] {
        let outcome = run(module).run();
        assert_eq!((outcome.complaints().as_str(), outcome.status), ("", 0));
        assert_eq!(outcome.stdout, format!("counter 10 ['{module}', 'x']\n"));
    }
}
