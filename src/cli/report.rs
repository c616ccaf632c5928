//! How a failure reaches the user: one or two lines on stderr and a status. Knows nothing of what failed.

use std::{
    borrow::Cow,
    ffi::OsStr,
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::parallel::shell_quote;

/// Why a command ended early.
#[derive(Debug)]
pub enum Failure {
    /// Wrong usage: status 2. The second text says where to read on.
    Usage(String, Cow<'static, str>),
    /// It could not start or ended by an error: status 1.
    Error(anyhow::Error),
    /// Whoever read our output stopped reading: a quiet end, status 0.
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

/// Reports a failure, and the status to exit with.
pub fn report(failure: &Failure) -> ExitCode {
    let (message, status) = match failure {
        Failure::Usage(message, read_on) => (format!("{message}\n{read_on}"), 2),
        Failure::Error(error) => (chain(error), 1),
        Failure::ClosedPipe => return ExitCode::SUCCESS,
    };
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let (red, reset) = if colours { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(io::stderr(), "{red}perf-prof:{reset} {message}");
    ExitCode::from(status)
}

/// An error and its causes in one line. Many errors of the pure rooms hold their cause's text already; once is enough.
fn chain(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Where to write what may be the path of a recording, as other commands of its kind take it.
pub fn place_of_path(error: &clap::Error) -> Option<String> {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::UnknownArgument && !word.starts_with('-') => {
            Some(format!("a recording is named with -i: `-i {}`", shell_quote(OsStr::new(word))))
        }
        _ => None,
    }
}

/// What clap says of wrong usage, in one line; help that was asked for goes to stdout as it is.
pub fn from_clap(error: &clap::Error, read_on: impl Into<Cow<'static, str>>) -> Result<ExitCode, Failure> {
    if !error.use_stderr() {
        error.print()?;
        io::stdout().flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = error.render().to_string();
    // A message, then paragraphs with tips, the usage and where to find help.
    let mut paragraphs = text.split("\n\n");
    let message = paragraphs.next().unwrap_or_default().trim_start_matches("error: ");
    let mut message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(tip) = paragraphs.find_map(|paragraph| paragraph.trim().strip_prefix("tip: ")) {
        message += &format!(" ({})", tip.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    Err(Failure::Usage(message, read_on.into()))
}
