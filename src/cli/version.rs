//! `-V`: prints the version, and with `-v` also the Python in use.

use std::{
    io::{self, Write},
    path::Path,
};

use perf_prof_session::engine::ExitStatus;

use super::failure::Failure;

/// Prints the version. `python` is the value of `--python`.
pub fn print(verbose: u8, python: Option<&Path>) -> Result<ExitStatus, Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "perf-prof {}", env!("CARGO_PKG_VERSION"))?;
    if verbose > 0 {
        writeln!(out, "{}", interpreter(python)?)?;
    }
    out.flush()?;
    Ok(ExitStatus(0))
}

#[cfg(feature = "python")]
fn interpreter(python: Option<&Path>) -> Result<String, Failure> {
    use perf_prof_python::script::{PythonChoice, interpreter_description};

    let choice = PythonChoice::make(python).map_err(anyhow::Error::from)?;
    Ok(interpreter_description(&choice))
}

#[cfg(not(feature = "python"))]
fn interpreter(_: Option<&Path>) -> Result<String, Failure> {
    Ok("built without Python".into())
}
