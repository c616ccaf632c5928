//! The values of options and arguments that shells complete: events of this kernel, scripts, programs and files.

use std::{
    collections::BTreeSet,
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
};

use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use perf_prof_events::derive;
use perf_prof_session::selectors::{self, RunningMachine};
use perf_prof_system::tracefs::Tracefs;

use crate::help;
#[cfg(feature = "python")]
use crate::script::script_names;

/// Returns all commands, with completers for the values that clap does not know. clap itself completes options, fixed
/// values, and values that are paths. `before` contains the words before the word that is completed.
pub fn with_completers(program: Command, before: &[OsString]) -> Command {
    let all = program.clone();
    program.mut_subcommands(|command| {
        let name = command.get_name().to_owned();
        let command = if name == "python" { command.args(arguments_of_python()) } else { command };
        command.mut_args(|arg| match completer(&name, &arg, before, &all) {
            Some(completer) => arg.add(completer),
            None => arg,
        })
    })
}

/// Returns a command whose arguments are those of `--exec`: `--exec PROGRAM [ARGS...]`.
pub fn command_line(before: &[OsString]) -> Command {
    let after = Place::of(before.len() == 1);
    Command::new("exec").disable_help_flag(true).arg(
        Arg::new("command")
            .num_args(1..)
            .trailing_var_arg(true)
            .allow_hyphen_values(true)
            .add(ArgValueCompleter::new(move |word: &OsStr| command_words(after, word))),
    )
}

/// Returns the positional arguments of `perf-prof python`. clap does not know them, because perf-prof parses them
/// itself.
fn arguments_of_python() -> [Arg; 2] {
    [Arg::new("module").index(1).num_args(1), Arg::new("args").index(2).num_args(1..)]
}

fn completer(command: &str, arg: &Arg, before: &[OsString], program: &Command) -> Option<ArgValueCompleter> {
    let previous = before.last().and_then(|word| word.to_str()).unwrap_or_default().to_owned();
    Some(match (command, arg.get_id().as_str()) {
        (_, "events") => ArgValueCompleter::new(event_list),
        ("list", "globs") => ArgValueCompleter::new(events),
        ("python", "module") => ArgValueCompleter::new(|word: &OsStr| all([scripts(word), fixed(word, &["help"])])),
        ("script", "script") => ArgValueCompleter::new(scripts),
        #[cfg(feature = "python")]
        ("script", "args") => ArgValueCompleter::new(move |word: &OsStr| match previous.as_str() {
            "script" => all([script_words(word), fixed(word, &["record", "report"]), scripts(word)]),
            "record" | "report" => script_words(word),
            _ => PathCompleter::any().complete(word),
        }),
        (_, "call_graph") => ArgValueCompleter::new(|word: &OsStr| fixed(word, &["fp", "dwarf"])),
        (_, "command") => {
            // Before `--`, an argument may still be the value of an option.
            let marked = before.iter().any(|word| word == "--");
            let after = Place::of(previous == "--" || (!marked && !arg.is_last_set()));
            ArgValueCompleter::new(move |word: &OsStr| command_words(after, word))
        }
        ("help", "words") => {
            let program = program.clone();
            ArgValueCompleter::new(move |word: &OsStr| topics(&program, word))
        }
        ("python", "args") => ArgValueCompleter::new(PathCompleter::any()),
        _ => return None,
    })
}

/// The position of a word in the command line of the traced program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Program,
    Argument,
}

impl Place {
    fn of(is_first: bool) -> Place {
        if is_first { Place::Program } else { Place::Argument }
    }
}

/// Returns the programs and paths that complete a word of the traced command line.
fn command_words(place: Place, word: &OsStr) -> Vec<CompletionCandidate> {
    let mut found = if place == Place::Program && !word.is_empty() { programs(word) } else { Vec::new() };
    found.extend(PathCompleter::any().complete(word));
    found
}

/// Returns the programs in PATH with names that start like `word`.
fn programs(word: &OsStr) -> Vec<CompletionCandidate> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let files = env::split_paths(&folders).filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let begins = |name: &OsString| name.as_encoded_bytes().starts_with(word.as_encoded_bytes());
    let is_program =
        |path: &Path| fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    let names: BTreeSet<OsString> = files
        .filter(|file| begins(&file.file_name()) && is_program(&file.path()))
        .map(|file| file.file_name())
        .collect();
    names.into_iter().map(CompletionCandidate::new).collect()
}

fn all<const N: usize>(lists: [Vec<CompletionCandidate>; N]) -> Vec<CompletionCandidate> {
    lists.into_iter().flatten().collect()
}

fn fixed(word: &OsStr, values: &[&'static str]) -> Vec<CompletionCandidate> {
    let word = word.to_string_lossy();
    values.iter().filter(|value| value.starts_with(&*word)).map(CompletionCandidate::new).collect()
}

/// Returns the folders and Python files that start like `word`.
fn scripts(word: &OsStr) -> Vec<CompletionCandidate> {
    PathCompleter::any().filter(|path| path.extension() == Some(OsStr::new("py"))).complete(word)
}

/// Returns the scripts of perf with names that start like `word`.
#[cfg(feature = "python")]
fn script_words(word: &OsStr) -> Vec<CompletionCandidate> {
    let word = word.to_string_lossy();
    let named = script_names().into_iter().filter(|(name, _)| name.starts_with(&*word));
    named.map(|(name, text)| CompletionCandidate::new(name).help(Some(text.into()))).collect()
}

/// Returns the words that start with `word` and that `perf-prof help` finds.
fn topics(program: &Command, word: &OsStr) -> Vec<CompletionCandidate> {
    let found = help::candidates(program, &word.to_string_lossy()).into_iter();
    found.map(|(name, text)| CompletionCandidate::new(name).help(Some(text.into()))).collect()
}

/// Completes the last event of a list such as `page-faults,sched:sched_switch`.
fn event_list(word: &OsStr) -> Vec<CompletionCandidate> {
    let text = word.to_string_lossy();
    let at = text.rfind([',', '{']).map_or(0, |at| at + 1);
    let (before, last) = text.split_at(at);
    events(OsStr::new(last)).into_iter().map(|event| event.add_prefix(before)).collect()
}

/// Returns the events of this kernel that start with `word`. Without a colon in `word`, returns only the systems of
/// tracepoints, because a kernel has more than a thousand tracepoints.
fn events(word: &OsStr) -> Vec<CompletionCandidate> {
    let word = word.to_string_lossy();
    // If the user may not read tracefs, only the other events are completed. The user can still trace these other
    // events.
    let text = Tracefs::find().and_then(|found| found.available_events()).unwrap_or_default();
    let tracepoints = text.lines().filter(|event| event.starts_with(&*word));
    if word.contains(':') {
        return tracepoints.collect::<BTreeSet<_>>().into_iter().map(CompletionCandidate::new).collect();
    }
    let systems: BTreeSet<&str> = tracepoints.filter_map(|event| Some(event.split_once(':')?.0)).collect();
    let mut others = selectors::available(&RunningMachine);
    others.extend(derive::source::SOURCES.iter().map(|source| (source.name.to_owned(), source.about)));
    let mut found: Vec<_> = others
        .into_iter()
        .filter(|(name, _)| name.starts_with(&*word))
        .map(|(name, kind)| CompletionCandidate::new(name).help(Some(kind.into())))
        .collect();
    found.extend(
        systems.iter().map(|system| CompletionCandidate::new(format!("{system}:")).help(Some("tracepoints".into()))),
    );
    found
}
