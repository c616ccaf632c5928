//! A terminal on which a command shows its sums while it runs. Each interval is drawn over the one before.

use anyhow::Result;
use perf_prof_format::control_characters::without_controls;
use perf_prof_system::{keys::Keys, output::terminal_size};

use crate::output::{Colours, Reader};

/// The columns and rows of a terminal that does not report its size.
const SIZE: (usize, usize) = (80, 24);

/// The terminal. The key `q` ends the run, as Ctrl-C does.
pub struct Screen {
    colours: Colours,
    is_drawn: bool,
    /// While this value exists, keys are read.
    _keys: Option<Keys>,
}

impl Screen {
    /// Starts to read the keys of the terminal. Nothing is drawn yet.
    pub fn open() -> Result<Screen> {
        let colours = match Reader::of_stdout() {
            Reader::Terminal(colours) => colours,
            Reader::Program => Colours::Off,
        };
        Ok(Screen { colours, is_drawn: false, _keys: Keys::read()? })
    }

    /// Returns the number of free lines below the head line.
    pub fn lines(&self) -> usize {
        // The head line takes one line. The last line stays empty for the cursor.
        size().1.saturating_sub(2)
    }

    /// Draws a head line and lines below it. Lines are cut to the width of the terminal.
    pub fn draw(&mut self, head: &str, lines: &[String], out: &mut Vec<u8>) {
        let (columns, rows) = size();
        // Sequences of ECMA-48 and xterm. The first drawing switches to the alternate screen, so that the former
        // contents return at the end. Each drawing moves the cursor home, erases the rest of each line, and then the
        // rest of the screen.
        out.extend_from_slice(if self.is_drawn { b"\x1b[H".as_slice() } else { b"\x1b[?1049h\x1b[?25l\x1b[H" });
        self.is_drawn = true;
        let head = format!("{head}   (q ends)");
        for (at, line) in [&head].into_iter().chain(lines).take(rows.saturating_sub(1)).enumerate() {
            let line: String = without_controls(line).chars().take(columns).collect();
            let (on, off) = match (self.colours, at) {
                (Colours::On, 0) => ("\x1b[1m", "\x1b[0m"),
                (Colours::On, 1) => ("\x1b[7m", "\x1b[0m"),
                _ => ("", ""),
            };
            out.extend_from_slice(format!("{on}{line}{off}\x1b[K\r\n").as_bytes());
        }
        out.extend_from_slice(b"\x1b[J");
    }

    /// Restores the terminal.
    pub fn close(self, out: &mut Vec<u8>) {
        if self.is_drawn {
            out.extend_from_slice(b"\x1b[?25h\x1b[?1049l");
        }
    }
}

fn size() -> (usize, usize) {
    terminal_size().filter(|&(_, lines)| lines != 0).unwrap_or(SIZE)
}
