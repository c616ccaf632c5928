//! The Python in use: the library that is linked and the environment whose packages scripts see.

use super::Check;
use crate::script::{Choice, ScriptError, libpython};

/// The minor version that libpython was linked for.
const BUILT_FOR: &str = env!("PERF_PROF_BUILD_PYTHON_VERSION");

pub(super) fn library() -> Check {
    let library = libpython().unwrap_or_else(|| "linked statically".into());
    Check::ok("libpython", format!("{library}, Python {BUILT_FOR}"))
}

pub(super) fn environment() -> Check {
    judge(Choice::make(None))
}

fn judge(choice: Result<Choice, ScriptError>) -> Check {
    let name = "environment";
    match choice {
        Ok(Choice { executable, because: Some(variable), .. }) => {
            Check::ok(name, format!("{}, from {variable}", executable.display()))
        }
        Ok(Choice { executable, because: None, .. }) => {
            Check::ok(name, format!("{}; no venv is active", executable.display()))
        }
        Err(error @ ScriptError::OtherVersion { because, .. }) => {
            let mend = format!("python{BUILT_FOR} -m venv VENV and activate it, or unset {because}");
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
    fn check(choice: Result<Choice, ScriptError>, expected: Expect) {
        let check = judge(choice);
        let text = format!("{}: {}\n{}", check.state, check.detail, check.mend.unwrap_or_default());
        expected.assert_eq(&text.replace(BUILT_FOR, "BUILT_FOR"));
    }

    #[test]
    fn environments() {
        let choice = |because| Ok(Choice { executable: "/venv/bin/python3".into(), packages: Vec::new(), because });
        check(
            choice(None),
            expect![[r#"
            ok: /venv/bin/python3; no venv is active
        "#]],
        );
        check(
            choice(Some("VIRTUAL_ENV")),
            expect![[r#"
            ok: /venv/bin/python3, from VIRTUAL_ENV
        "#]],
        );
        check(
            Err(ScriptError::NoPython { path: "/gone".into(), because: "VIRTUAL_ENV" }),
            expect![[r#"
            fail: VIRTUAL_ENV: no usable Python at '/gone'; name an interpreter or the folder of a virtual environment
            unset VIRTUAL_ENV"#]],
        );
        let (theirs, ours) = ("2.7".into(), BUILT_FOR);
        let error = ScriptError::OtherVersion { path: "/venv".into(), because: "CONDA_PREFIX", theirs, ours };
        check(
            Err(error),
            expect![[r#"
            fail: CONDA_PREFIX: '/venv' is Python 2.7, but perf-prof is linked with Python BUILT_FOR: use a Python BUILT_FOR environment, or build perf-prof for the other one (PYO3_PYTHON=/path/to/python2.7 cargo build --release)
            pythonBUILT_FOR -m venv VENV and activate it, or unset CONDA_PREFIX"#]],
        );
    }
}
