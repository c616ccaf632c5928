//! The command line of this process, and that of a recorder, for the captions of pictures. Only the command line's crate knows argv,
//! and notes it here.

use std::sync::OnceLock;

use perf_prof_system::shell::shell_quote_all;

static COMMAND: OnceLock<String> = OnceLock::new();

/// The number of characters at which a command line is cut off in a caption.
const LONGEST: usize = 400;

/// Notes the command line as somebody would type it. Only the first call has an effect.
pub fn note_command(line: String) {
    COMMAND.get_or_init(|| cut_off(line));
}

fn cut_off(line: String) -> String {
    match line.char_indices().nth(LONGEST) {
        Some((at, _)) => line[..at].to_owned() + "...",
        None => line,
    }
}

/// Returns the command line of this process, and in a second line that of the recorder, whose words are `recorder`. `None` if
/// neither is known.
pub(super) fn of_replay(recorder: &[String]) -> Option<String> {
    let recorder = (!recorder.is_empty()).then(|| format!("recorded by: {}", cut_off(shell_quote_all(recorder))));
    let lines: Vec<String> = command().into_iter().chain(recorder).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Returns the command line. `None` if this process is no command, for example a Python in which perf-prof is a module.
pub(super) fn command() -> Option<String> {
    COMMAND.get().cloned()
}
