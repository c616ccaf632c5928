//! The command line of this process, for the captions of pictures. Only the command line's crate knows argv, and notes it here.

use std::sync::OnceLock;

static COMMAND: OnceLock<String> = OnceLock::new();

/// Notes the command line as somebody would type it. Only the first call has an effect.
pub fn note_command(line: String) {
    COMMAND.get_or_init(|| line);
}

/// Returns the command line. `None` if this process is no command, for example a Python in which perf-prof is a module.
pub(super) fn command() -> Option<String> {
    COMMAND.get().cloned()
}
