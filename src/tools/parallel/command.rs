//! A command with its arguments, in a form that can be run and shown to the user.

use std::ffi::OsString;

use perf_prof_system::shell::shell_quote_all;

/// A command and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command(Vec<OsString>);

impl Command {
    /// Creates a command from its words: the program and its arguments. `words` must not be empty.
    pub fn new(words: Vec<OsString>) -> Self {
        Self(words)
    }

    /// Returns the words of the command.
    pub fn words(&self) -> &[OsString] {
        &self.0
    }

    /// Returns the command line, quoted for a shell.
    pub fn quoted(&self) -> String {
        shell_quote_all(&self.0)
    }
}
