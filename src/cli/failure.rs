//! Reports a failure to the user: one or two lines on stderr and an exit status.

use std::{
    borrow::Cow,
    env,
    io::{self, IsTerminal, Write},
};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use perf_prof_format::spec::similar_names;
use perf_prof_session::engine::ExitStatus;
use perf_prof_system::{output, shell::shell_quote};

/// Why a command ended early.
#[derive(Debug)]
pub enum Failure {
    /// Wrong usage. The first text is the message; the second text says where the user finds help.
    Usage(String, Cow<'static, str>),
    /// The command could not start, or an error ended it. The exit status is 1.
    Error(anyhow::Error),
    /// The reader of perf-prof's output closed the pipe. This is not an error: no message is printed, and the exit
    /// status is 0.
    ClosedPipe,
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let closed = |cause: &(dyn std::error::Error + 'static)| {
            cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
        };
        if error.chain().any(closed) { Failure::ClosedPipe } else { Failure::Error(error) }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        anyhow::Error::from(error).context("cannot write the output").into()
    }
}

/// The exit status after wrong usage.
pub const WRONG_USAGE: u8 = 2;

/// Reports a failure on stderr and returns the exit status. `wrong_usage` is the status after wrong usage.
pub fn report(failure: &Failure, wrong_usage: u8) -> ExitStatus {
    let (message, status) = match failure {
        Failure::Usage(message, read_on) => (format!("{message}\n{read_on}"), wrong_usage),
        Failure::Error(error) => (one_line(error), 1),
        Failure::ClosedPipe => return ExitStatus(0),
    };
    let colours = io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let (red, reset) = if colours { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    output::write_line(&format!("{red}perf-prof:{reset} {}", output::shown_on_stderr(&message)));
    ExitStatus(status)
}

/// Returns an error and its causes as one line. Skips a cause if the line so far already contains the text of the
/// cause.
fn one_line(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Returns a hint to use `-i` if the unexpected argument may be the path of a recording. Commands that read a recording
/// take its path with `-i`, as in perf.
pub fn recording_path_hint(error: &clap::Error) -> Option<String> {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::UnknownArgument && !word.starts_with('-') => {
            Some(format!("to select a recording, use -i: `-i {}`", shell_quote(word)))
        }
        _ => None,
    }
}

/// Turns clap's message about wrong usage into one line. Requested help is printed to stdout unchanged.
pub fn from_clap(error: &clap::Error, read_on: impl Into<Cow<'static, str>>) -> Result<ExitStatus, Failure> {
    if !error.use_stderr() {
        error.print()?;
        io::stdout().flush()?;
        return Ok(ExitStatus(0));
    }
    Err(Failure::Usage(message(error), read_on.into()))
}

/// Returns a tip if an option was typed with one hyphen. For example, clap reads `-min 5` as the option `-m` with the
/// value `in`.
fn one_hyphen_tip(error: &clap::Error, words: impl Iterator<Item = String>) -> Option<String> {
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else { return None };
    let is_of_word = |word: &String| {
        let short = word.strip_prefix('-').filter(|short| short.starts_with(char::is_alphabetic));
        short.and_then(|short| short.strip_suffix(value.as_str())).is_some_and(|option| option.chars().count() == 1)
    };
    let word = words.into_iter().find(is_of_word).filter(|_| value.starts_with(char::is_alphabetic))?;
    Some(format!("`{word}` is `{} {value}`; long options begin with two hyphens", &word[..word.len() - value.len()]))
}

/// Returns a tip if `-e` was used with `top` or `hist`, which take events without `-e`.
fn events_tip(error: &clap::Error, mut words: impl Iterator<Item = String>) -> Option<String> {
    let command = words.nth(1).filter(|word| ["top", "hist"].contains(&word.as_str()))?;
    let is_option = matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(word)) if ["-e", "--event"].contains(&word.as_str()));
    (is_option && error.kind() == ErrorKind::UnknownArgument)
        .then(|| format!("write the events without -e: `perf-prof {command} EVENT,...`"))
}

/// Returns a tip with the names of similar commands if the command is unknown.
fn command_tip(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let near = similar_names(word, super::program().get_subcommands().map(clap::Command::get_name));
    (!near.is_empty()).then(|| format!("did you mean {}?", near.join(" or ")))
}

/// Returns clap's message about wrong usage as one line.
pub fn message(error: &clap::Error) -> String {
    let text = error.render().to_string();
    // The first paragraph of clap's text is the message. Tips, the usage, and a hint at --help follow.
    let mut paragraphs = text.split("\n\n");
    let message = paragraphs.next().unwrap_or_default().trim_start_matches("error: ");
    let mut message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    // clap's tip how to pass an unknown option to the traced command is skipped: in most cases, the option is a
    // mistake.
    let mut tips = paragraphs.flat_map(str::lines).filter_map(|line| line.trim().strip_prefix("tip: "));
    let of_clap = || tips.find(|tip| !tip.starts_with("to pass '")).map(str::to_owned);
    // For commands, perf-prof has its own tips: for `tpo`, clap suggests `python`.
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => command_tip(error),
        _ => events_tip(error, env::args()).or_else(|| one_hyphen_tip(error, env::args())).or_else(of_clap),
    };
    if let Some(tip) = tip {
        message += &format!(" ({})", tip.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    message
}
