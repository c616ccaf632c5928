//! Checks of the Python in use: the linked library, and the environment that provides the packages for scripts.

use perf_prof_python::script::{BUILD_VERSION, ChoiceSource, PythonChoice, ScriptError, libpython};

use super::Check;

pub(super) fn library() -> Check {
    let library = libpython().unwrap_or_else(|| "linked statically".into());
    Check::ok("libpython", format!("{library}, Python {BUILD_VERSION}"))
}

pub(super) fn environment() -> Check {
    judge(PythonChoice::make(None))
}

fn judge(choice: Result<PythonChoice, ScriptError>) -> Check {
    let name = "environment";
    match choice {
        Ok(PythonChoice { executable, source: ChoiceSource::Named(variable), .. }) => {
            Check::ok(name, format!("{}, from {variable}", executable.display()))
        }
        Ok(PythonChoice { executable, source: ChoiceSource::Build, .. }) => {
            Check::ok(name, format!("{}; no venv is active", executable.display()))
        }
        Ok(PythonChoice { executable, source: ChoiceSource::Running, .. }) => {
            Check::ok(name, format!("{}, for which this perf-prof is installed", executable.display()))
        }
        Err(error @ ScriptError::OtherVersion { because, .. }) => {
            let mend =
                format!("create a venv with python{BUILD_VERSION} -m venv VENV and activate it, or unset {because}");
            Check::fail(name, error.to_string(), Some(&mend))
        }
        Err(error @ ScriptError::NoPython { because, .. }) => {
            Check::fail(name, error.to_string(), Some(&format!("unset {because}")))
        }
        Err(error) => Check::fail(name, error.to_string(), None),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(choice: Result<PythonChoice, ScriptError>, expected: Expect) {
        let check = judge(choice);
        let text = format!("{}: {}\n{}", check.state, check.detail, check.mend.unwrap_or_default());
        expected.assert_eq(&text.replace(BUILD_VERSION, "BUILD_VERSION"));
    }

    #[test]
    fn environments() {
        let choice = |source| Ok(PythonChoice { executable: "/venv/bin/python3".into(), packages: Vec::new(), source });
        check(
            choice(ChoiceSource::Build),
            expect![[r#"
            ok: /venv/bin/python3; no venv is active
        "#]],
        );
        check(
            choice(ChoiceSource::Named("VIRTUAL_ENV")),
            expect![[r#"
            ok: /venv/bin/python3, from VIRTUAL_ENV
        "#]],
        );
        check(
            Err(ScriptError::NoPython { path: "/gone".into(), because: "VIRTUAL_ENV" }),
            expect![[r#"
            fail: VIRTUAL_ENV: no usable Python at '/gone'; give the path of an interpreter or of a virtual environment
            unset VIRTUAL_ENV"#]],
        );
        let (theirs, ours) = ("2.7".into(), BUILD_VERSION);
        let error = ScriptError::OtherVersion { path: "/venv".into(), because: "CONDA_PREFIX", theirs, ours };
        check(
            Err(error),
            expect![[r#"
            fail: CONDA_PREFIX: '/venv' is Python 2.7, but perf-prof is linked with Python BUILD_VERSION: use a Python BUILD_VERSION environment, or build perf-prof for Python 2.7 (PYO3_PYTHON=/path/to/python2.7 cargo build --release)
            create a venv with pythonBUILD_VERSION -m venv VENV and activate it, or unset CONDA_PREFIX"#]],
        );
    }
}
