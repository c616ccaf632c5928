//! `perf-prof doctor`: whether this machine is ready, what is wrong, and the command that mends it.

mod machine;
mod python;
mod rights;

use std::{
    fmt,
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use clap::Args;
use serde::Serialize;

use super::report::Failure;

/// Arguments of `doctor`.
#[derive(Args)]
pub struct Doctor {
    /// Print an array of objects
    #[arg(long)]
    json: bool,
}

/// What one look at the machine gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    /// What was found, and what follows from it.
    detail: String,
    /// The command that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<String>,
}

/// Whether scripts can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// As it should be.
    Ok,
    /// Scripts run, something is missing or slower.
    Warn,
    /// No script can run.
    Fail,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            State::Ok => "ok",
            State::Warn => "warn",
            State::Fail => "fail",
        })
    }
}

impl Check {
    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, state: State::Ok, detail: detail.into(), mend: None }
    }

    fn warn(name: &'static str, detail: impl Into<String>, mend: Option<&str>) -> Self {
        Self { name, state: State::Warn, detail: detail.into(), mend: mend.map(str::to_owned) }
    }

    fn fail(name: &'static str, detail: impl Into<String>, mend: Option<&str>) -> Self {
        Self { name, state: State::Fail, detail: detail.into(), mend: mend.map(str::to_owned) }
    }
}

/// Every check, in the order in which they are shown.
const CHECKS: &[fn() -> Check] = &[
    machine::kernel,
    rights::perf_events,
    rights::capabilities,
    machine::tracefs,
    machine::tracepoint,
    machine::hardware,
    machine::probes,
    machine::open_files,
    machine::ring_memory,
    rights::kernel_symbols,
    python::library,
    python::environment,
];

impl Doctor {
    /// Looks at everything and prints what it found.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let checks: Vec<Check> = CHECKS.iter().map(|check| check()).collect();
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &checks).map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            let colours = out.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            print(&mut out, &checks, colours)?;
        }
        out.flush()?;
        let failed = checks.iter().any(|check| check.state == State::Fail);
        Ok(ExitCode::from(u8::from(failed)))
    }
}

fn print(out: &mut impl Write, checks: &[Check], colours: bool) -> io::Result<()> {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for Check { name, state, detail, mend } in checks {
        let (on, off) = match (colours, state) {
            (false, _) => ("", ""),
            (true, State::Ok) => ("\x1b[32m", "\x1b[0m"),
            (true, State::Warn) => ("\x1b[33m", "\x1b[0m"),
            (true, State::Fail) => ("\x1b[1;31m", "\x1b[0m"),
        };
        writeln!(out, "{on}{state:4}{off}  {name:width$}  {detail}")?;
        if let Some(mend) = mend {
            writeln!(out, "      {:width$}  mend it: {mend}", "")?;
        }
    }
    let worst = |state| checks.iter().filter(|check| check.state == state).count();
    match (worst(State::Fail), worst(State::Warn)) {
        (0, 0) => writeln!(out, "everything is ready"),
        (0, warnings) => writeln!(out, "scripts can run; {warnings} to look at"),
        (failures, _) => writeln!(out, "scripts cannot run yet: {failures} to mend"),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn report() {
        let checks = [
            Check::ok("kernel", "6.18"),
            Check::warn("open files", "few", Some("ulimit -n 1024")),
            Check::fail("tracefs", "not mounted", None),
        ];
        let mut out = Vec::new();
        print(&mut out, &checks, false).unwrap();
        expect![[r#"
            ok    kernel      6.18
            warn  open files  few
                              mend it: ulimit -n 1024
            fail  tracefs     not mounted
            scripts cannot run yet: 1 to mend
        "#]]
        .assert_eq(&String::from_utf8(out).unwrap());
        expect![[r#"[{"name":"open files","state":"warn","detail":"few","mend":"ulimit -n 1024"},{"name":"tracefs","state":"fail","detail":"not mounted"}]"#]].assert_eq(&serde_json::to_string(&checks[1..]).unwrap());
    }

    #[test]
    fn every_check_has_a_name_of_its_own_and_failures_say_more() {
        let checks: Vec<Check> = CHECKS.iter().map(|check| check()).collect();
        let mut names: Vec<_> = checks.iter().map(|check| check.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CHECKS.len());
        assert!(checks.iter().all(|check| !check.detail.is_empty()), "{checks:?}");
    }
}
