//! `perf-prof doctor`: checks whether this machine is ready. Prints each problem and the command that fixes it.

mod idle;
mod machine;
#[cfg(feature = "python")]
mod python;
mod rights;

use std::{
    fmt,
    io::{self, IsTerminal, Write},
};

use clap::Args;
use serde::Serialize;

use perf_prof_session::engine::ExitStatus;

use super::failure::Failure;

/// The arguments of `doctor`.
#[derive(Args)]
pub struct Doctor {
    /// Print a JSON array with an object for each check
    #[arg(long)]
    json: bool,
}

/// Returns which CPUs deliver no events of their idle task, and what is missing then, if words of a command line name a source
/// that lacks such events. Otherwise, or if all events arrive, returns `None`. Takes a fiftieth of a second.
#[cfg(feature = "python")]
pub fn hidden_idle_events<'a>(words: impl Iterator<Item = &'a str>) -> Option<String> {
    let check = idle::are_in_interrupts(words).then(idle::idle_events)?;
    check.mend.map(|_| check.detail)
}

/// The result of one check of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    /// What was found, and what this means for the user.
    detail: String,
    /// The command that fixes the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<String>,
}

/// The result of a check: says whether scripts can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// Nothing is missing.
    Ok,
    /// It could not be found out now whether something is missing.
    Unknown,
    /// Scripts can run, but a feature is missing or something is slower.
    Warn,
    /// Scripts cannot run.
    Fail,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            State::Ok => "ok",
            State::Unknown => "unknown",
            State::Warn => "warn",
            State::Fail => "fail",
        })
    }
}

impl Check {
    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, state: State::Ok, detail: detail.into(), mend: None }
    }

    fn unknown(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, state: State::Unknown, detail: detail.into(), mend: None }
    }

    fn warn(name: &'static str, detail: impl Into<String>, mend: Option<&str>) -> Self {
        Self { name, state: State::Warn, detail: detail.into(), mend: mend.map(str::to_owned) }
    }

    fn fail(name: &'static str, detail: impl Into<String>, mend: Option<&str>) -> Self {
        Self { name, state: State::Fail, detail: detail.into(), mend: mend.map(str::to_owned) }
    }
}

/// All checks, in the order of the output.
const CHECKS: &[fn() -> Check] = &[
    machine::kernel,
    rights::perf_events,
    rights::capabilities,
    machine::tracefs,
    machine::tracepoint,
    idle::idle_events,
    machine::hardware,
    machine::probes,
    machine::left_over_probes,
    machine::open_files,
    machine::ring_memory,
    rights::kernel_symbols,
    rights::in_kernel,
    #[cfg(feature = "python")]
    python::library,
    #[cfg(feature = "python")]
    python::environment,
];

impl Doctor {
    /// Runs all checks and prints their results. The exit status is 1 if a check failed.
    pub fn run(&self) -> Result<ExitStatus, Failure> {
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
        Ok(ExitStatus(u8::from(failed)))
    }
}

fn print(out: &mut impl Write, checks: &[Check], colours: bool) -> io::Result<()> {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let of_state = checks.iter().map(|check| check.state.to_string().len()).max().unwrap_or(0);
    for Check { name, state, detail, mend } in checks {
        let (on, off) = match (colours, state) {
            (false, _) => ("", ""),
            (true, State::Ok) => ("\x1b[32m", "\x1b[0m"),
            (true, State::Unknown) => ("\x1b[36m", "\x1b[0m"),
            (true, State::Warn) => ("\x1b[33m", "\x1b[0m"),
            (true, State::Fail) => ("\x1b[1;31m", "\x1b[0m"),
        };
        writeln!(out, "{on}{state:of_state$}{off}  {name:width$}  {detail}")?;
        if let Some(mend) = mend {
            writeln!(out, "{:of_state$}  {:width$}  to fix it: {mend}", "", "")?;
        }
    }
    let number = |state| checks.iter().filter(|check| check.state == state).count();
    match [State::Fail, State::Warn, State::Unknown].map(number) {
        [0, 0, 0] => writeln!(out, "everything is ready"),
        [0, 0, unknown] => writeln!(out, "everything is ready, as far as known; not known: {unknown}"),
        [0, warnings, _] => writeln!(out, "scripts can run; warnings: {warnings}"),
        [failures, ..] => writeln!(out, "scripts cannot run yet; failed checks: {failures}"),
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
                              to fix it: ulimit -n 1024
            fail  tracefs     not mounted
            scripts cannot run yet; failed checks: 1
        "#]]
        .assert_eq(&String::from_utf8(out).unwrap());
        expect![[r#"[{"name":"open files","state":"warn","detail":"few","mend":"ulimit -n 1024"},{"name":"tracefs","state":"fail","detail":"not mounted"}]"#]].assert_eq(&serde_json::to_string(&checks[1..]).unwrap());
    }

    #[test]
    fn what_could_not_be_judged_is_not_ok() {
        let checks = [Check::ok("kernel", "6.18"), Check::unknown("idle tasks", "busy")];
        let mut out = Vec::new();
        print(&mut out, &checks, false).unwrap();
        expect![[r#"
            ok       kernel      6.18
            unknown  idle tasks  busy
            everything is ready, as far as known; not known: 1
        "#]]
        .assert_eq(&String::from_utf8(out).unwrap());
        expect![[r#"[{"name":"idle tasks","state":"unknown","detail":"busy"}]"#]]
            .assert_eq(&serde_json::to_string(&checks[1..]).unwrap());
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
