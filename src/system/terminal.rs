//! Writes to a terminal, with control characters shown as text.

use std::io::{self, IsTerminal, Write};

use perf_prof_format::control_characters::for_terminal;

/// A writer to stdout. If stdout is a terminal, control characters are shown as text. Files and pipes get the bytes
/// unchanged.
#[derive(Debug)]
pub struct ShownOnStdout<W> {
    to: W,
    is_terminal: bool,
}

impl<W: Write> ShownOnStdout<W> {
    /// Returns a writer that passes text on to `to`. `to` writes to stdout.
    pub fn new(to: W) -> Self {
        Self { to, is_terminal: io::stdout().is_terminal() }
    }
}

impl<W: Write> Write for ShownOnStdout<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return self.to.write(text);
        }
        self.to.write_all(&for_terminal(text))?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminal_gets_escaped_text() {
        for (is_terminal, expected) in [(true, b"a\\x1b\n".as_slice()), (false, b"a\x1b\n")] {
            let mut written = Vec::new();
            ShownOnStdout { to: &mut written, is_terminal }.write_all(b"a\x1b\n").unwrap();
            assert_eq!(written, expected);
        }
    }
}
