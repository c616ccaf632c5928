//! The output of a command. Text is collected, and written when it is long enough or when the run waits for events.

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use perf_prof_events::event::{Flow, Stop};
use perf_prof_system::terminal::ShownOnStdout;

/// Text is collected up to this many bytes before it is written.
const WRITTEN_AT_ONCE: usize = 64 << 10;

/// Where a command prints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// The standard output.
    #[default]
    Stdout,
    /// A file, which is created or overwritten.
    File(PathBuf),
}

/// The format of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Text, for people.
    #[default]
    Text,
    /// JSON objects, each on one line, for programs.
    Json,
}

/// The reader of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A terminal. Control characters are replaced by text.
    Terminal(Colours),
    /// A file or a program, which gets the bytes unchanged.
    Program,
}

/// Says if text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// Text has the colours of its parts.
    On,
    /// Text is plain.
    Off,
}

impl Reader {
    /// Returns the reader of the standard output. A terminal gets colours unless NO_COLOR is set (no-color.org).
    pub fn of_stdout() -> Reader {
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        match io::stdout().is_terminal() {
            true => Reader::Terminal(if is_plain { Colours::Off } else { Colours::On }),
            false => Reader::Program,
        }
    }
}

/// An output, and the text that was not written to it yet.
pub struct Output {
    /// The text that was not written yet.
    pub waiting: Vec<u8>,
    /// The reader of the text.
    pub reader: Reader,
    to: Box<dyn Write>,
    failure: Option<io::Error>,
}

impl Output {
    /// Opens the output.
    pub fn open(destination: &Destination) -> Result<Output> {
        let (to, reader): (Box<dyn Write>, Reader) = match destination {
            Destination::Stdout => (Box::new(io::stdout().lock()), Reader::of_stdout()),
            Destination::File(path) => (Box::new(create(path)?), Reader::Program),
        };
        Ok(Output::new(to, reader))
    }

    /// Opens the standard output. On a terminal, control characters are shown as text.
    pub fn shown_on_stdout() -> Output {
        Output::new(Box::new(ShownOnStdout::new(io::stdout().lock())), Reader::of_stdout())
    }

    fn new(to: Box<dyn Write>, reader: Reader) -> Output {
        Output { waiting: Vec::with_capacity(2 * WRITTEN_AT_ONCE), reader, to, failure: None }
    }

    /// Writes the collected text if it is long enough.
    pub fn write_if_much(&mut self) -> Flow {
        if self.waiting.len() < WRITTEN_AT_ONCE { ControlFlow::Continue(()) } else { self.write() }
    }

    /// Writes the collected text. After a failure, nothing more is written.
    pub fn write(&mut self) -> Flow {
        if self.failure.is_some() {
            return ControlFlow::Continue(());
        }
        let result = self.to.write_all(&self.waiting).and_then(|()| self.to.flush());
        self.waiting.clear();
        match result {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                let stop = stop_after(&error);
                self.failure = Some(error);
                ControlFlow::Break(stop)
            }
        }
    }

    /// Fails if text could not be written. A closed pipe is not an error.
    pub fn check(self) -> Result<()> {
        match self.failure {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("cannot write the output"),
            _ => Ok(()),
        }
    }
}

/// Returns why a sink stops whose output could not be written.
pub fn stop_after(error: &io::Error) -> Stop {
    if error.kind() == io::ErrorKind::BrokenPipe { Stop::ClosedPipe } else { Stop::Failed }
}

fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}
