//! Hints for two mistakes. An event without `-e` is taken for a command. A command without `--` is taken for an event.

use std::{env, ffi::OsString};

use anyhow::anyhow;
use perf_prof_format::spec::{EventKind, EventSpec, named_event, parse_events};
use perf_prof_session::{plan::PlanError, selectors};
use perf_prof_system::{shell::shell_quote, workload::WorkloadError};

use crate::option_error::OptionError;

/// Adds a hint to an error: use `-e`. The hint is added if the error says that the command cannot be executed, and the
/// name of the command is a list of events.
pub fn with_hint(error: anyhow::Error, command: Option<&OsString>) -> anyhow::Error {
    let mut refused = error.chain().filter_map(|cause| cause.downcast_ref());
    let refused = refused.find(|error| matches!(error, WorkloadError::Exec { .. }));
    match (refused, hint(command)) {
        (Some(refused), Some(hint)) => anyhow!("{refused}; {hint}"),
        _ => error,
    }
}

/// Returns the message for refused options. The message contains the hint of [`with_hint`] if the options are refused
/// because a command is not allowed or because an event is missing.
pub fn refusal(error: &OptionError, command: Option<&OsString>) -> String {
    use PlanError::{CommandBesideTarget, CommandWithInput};
    let is_of_words =
        matches!(error, OptionError::Plan(CommandBesideTarget | CommandWithInput(_)) | OptionError::NoEvent);
    match hint(command).filter(|_| is_of_words) {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}

/// Returns the hint if the name of a command is a list of events.
fn hint(command: Option<&OsString>) -> Option<String> {
    let name = command?.to_str().filter(|name| are_events(name))?;
    Some(format!("did you mean `-e {}`?", shell_quote(name)))
}

/// Adds a hint to an error: write `--` before the command. The hint is added if a word after the first event is the
/// name of a program and not of an event.
pub fn with_hint_of_command(error: anyhow::Error, words: &[String]) -> anyhow::Error {
    match words.iter().skip(1).position(|word| !are_events(word) && is_program(word)) {
        Some(at) => anyhow!("{error:#}; to run a command, write `--` before it: `-- {}`", words[at + 1..].join(" ")),
        None => error,
    }
}

/// Words after a script that look like a command to trace, as in `perf-prof top EVENT -- COMMAND`. After a script, they are
/// arguments of the script.
#[cfg(feature = "python")]
pub enum CommandBehindScript {
    /// The path of an executable file. Contains the error for a run that would trace the whole machine instead.
    Path(String),
    /// The name of a program. Contains the warning.
    Name(String),
}

#[cfg(feature = "python")]
impl CommandBehindScript {
    /// Returns what the arguments of a script contain.
    pub fn of(args: &[OsString]) -> Option<CommandBehindScript> {
        let at = args.iter().position(|arg| arg == "--")?;
        let command = args.get(at + 1..)?;
        let first = command.first()?.to_str()?;
        let words = perf_prof_system::shell::shell_quote_all(command);
        let belongs = format!("`-- {words}` belongs to the script; to run and trace a command, use `--exec {words}`");
        if is_executable_path(first) {
            let whole = "with --all-cpus, the script gets these words, and the whole machine is traced";
            return Some(CommandBehindScript::Path(format!("{belongs}; {whole}")));
        }
        is_program(first).then(|| CommandBehindScript::Name(format!("warning: {belongs}")))
    }
}

/// Returns whether a word is a path with a slash, of a file that can be executed.
#[cfg(feature = "python")]
fn is_executable_path(word: &str) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let can_run = |file: std::fs::Metadata| file.is_file() && file.permissions().mode() & 0o111 != 0;
    word.contains('/') && std::fs::metadata(word).is_ok_and(can_run)
}

fn is_program(word: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    !word.contains('/') && env::split_paths(&path).any(|folder| folder.join(word).is_file())
}

/// Returns whether a text is a list of events, or begins with an event and a `/`, as a selector with a mistake does. A path
/// such as `./a:b` is no event, because it names a program.
fn are_events(text: &str) -> bool {
    let are_all = |text: &str| parse_events(text).is_ok_and(|events| events.iter().all(is_event));
    !text.starts_with(['.', '/']) && (are_all(text) || text.split_once('/').is_some_and(|(event, _)| are_all(event)))
}

/// Returns whether a selector is certainly an event. Some words are valid selectors, although they are not meant as
/// events.
fn is_event(event: &EventSpec) -> bool {
    match &event.kind {
        EventKind::Source { name, .. } => {
            named_event(name).is_some() || selectors::built_in(name).is_some() || selectors::is_system_call(name)
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_events_and_system_calls_are_events() {
        for text in
            ["offcpu", "offcpu/min=1ms/", "offcpu/min=1ms", "sched:sched_switch", "openat,read", "cycles:u", "lock,irq"]
        {
            assert!(are_events(text), "{text}");
        }
        for text in ["no-such-program", "./sched:sched_switch", "/bin/offcpu", "offcpu,make"] {
            assert!(!are_events(text), "{text}");
        }
    }
}
