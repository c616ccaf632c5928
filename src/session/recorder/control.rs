//! Reads commands for a running recording: `enable`, `disable`, `ping`, `snapshot` and `stop`, one per line, as in
//! perf. After a command was carried out, the answer `ack` is sent. For an unknown command, a message lists the known
//! commands, and no answer is sent.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::{
        fd::{AsRawFd, RawFd},
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::Path,
};

use anyhow::{Context, Result, bail};
use crossbeam_channel::{Receiver, Sender};
use perf_prof_capture::Capture;
use perf_prof_format::{record::Source, spec::Control as ControlSpec};
use perf_prof_system::{epoll::Epoll, eventfd, file, output, own_threads};

/// All commands, by their names.
const KNOWN: [(&str, Command); 5] = [
    ("enable", Command::Enable),
    ("disable", Command::Disable),
    ("ping", Command::Ping),
    ("snapshot", Command::Snapshot),
    ("stop", Command::Stop),
];

/// The maximum length of a line, in bytes. The rest of a longer line is dropped, because no command is that long.
const LONGEST_LINE: usize = 4096;

/// A command to the recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Turns the events on.
    Enable,
    /// Turns the events off.
    Disable,
    /// Only sends the answer.
    Ping,
    /// Writes what the rings keep (`--before`, `--overwrite`).
    Snapshot,
    /// Ends the recording.
    Stop,
}

impl Command {
    /// Turns the events on or off, or ends the capture. Does nothing for other commands. Prints a message if the kernel
    /// refuses.
    pub fn switch(self, capture: &mut Capture) {
        let done = match self {
            Command::Enable => capture.enable_events(),
            Command::Disable => capture.disable_events(),
            Command::Stop => {
                capture.stop();
                Ok(())
            }
            Command::Ping | Command::Snapshot => Ok(()),
        };
        done.unwrap_or_else(output::say);
    }
}

/// The commands that were received, and the file for the answers.
#[derive(Debug)]
pub struct Control {
    commands: Receiver<Command>,
    ack: Option<File>,
}

impl Control {
    /// Opens the pipes or descriptors, and starts a thread that reads commands. When a command arrives, the thread
    /// makes the eventfd `wake` readable.
    pub fn open(place: &ControlSpec, wake: RawFd) -> Result<Control> {
        // The pipe is opened for reading and writing. So `open` does not wait for the other side, and reading does not
        // end when the other side closes the pipe.
        let fifo = |path: &Path| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
            let file = options.open(path).with_context(|| format!("--control: cannot open '{}'", path.display()))?;
            // In a regular file, the answers would overwrite the start of the file.
            if !file.metadata().is_ok_and(|found| found.file_type().is_fifo()) {
                bail!("--control: '{}' is not a named pipe; make one with mkfifo", path.display());
            }
            Ok(file)
        };
        let inherited = |fd| file::duplicate(fd).with_context(|| format!("--control: descriptor {fd} is not open"));
        let (control, ack) = match place {
            ControlSpec::Fd(control, ack) => (inherited(*control)?, ack.map(inherited).transpose()?),
            ControlSpec::Fifo(control, ack) => (fifo(control)?, ack.as_deref().map(fifo).transpose()?),
        };
        let epoll = Epoll::new()?;
        epoll
            .add(control.as_raw_fd(), 0)
            .context("--control: cannot wait for commands; use a named pipe, not a regular file")?;
        let (sender, commands) = crossbeam_channel::unbounded();
        let listen = move || listen(control, epoll, &sender, wake);
        own_threads::spawn("perf-prof-control", listen).context("--control")?;
        Ok(Control { commands, ack })
    }

    /// Returns the next command, if one has arrived.
    pub fn next(&self) -> Option<Command> {
        self.commands.try_recv().ok()
    }

    /// Sends the answer that a command is done.
    pub fn ack(&mut self) {
        // The sender may have closed the pipe without waiting for the answer.
        if let Some(ack) = &mut self.ack {
            let _ = ack.write_all(b"ack\n");
        }
    }
}

/// Reads commands until the other side closes the file, or the recording ends.
fn listen(mut control: File, epoll: Epoll, commands: &Sender<Command>, wake: RawFd) {
    let (mut ready, mut lines, mut piece) = (Vec::new(), Vec::new(), [0; 256]);
    while epoll.wait(None, &mut ready).is_ok() {
        match control.read(&mut piece) {
            Ok(0) => return,
            Ok(size) => lines.extend(&piece[..size]),
            Err(error) if [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::Interrupted].contains(&error.kind()) => {
            }
            Err(_) => return,
        }
        while let Some(end) = lines.iter().position(|byte| [b'\n', 0].contains(byte)) {
            let line: Vec<u8> = lines.drain(..=end).collect();
            let Some(command) = command(&line[..end]) else { continue };
            if commands.send(command).is_err() {
                return;
            }
            eventfd::signal(wake);
        }
        lines.truncate(LONGEST_LINE);
    }
}

/// Returns the command in a line. Unknown commands are reported on stderr and get no ack, as in perf
/// (`evlist__ctlfd_process()` in `tools/perf/util/evlist.c`).
fn command(line: &[u8]) -> Option<Command> {
    let word = line.trim_ascii();
    let known = KNOWN.into_iter().find(|(name, _)| name.as_bytes() == word).map(|(_, command)| command);
    // A program that ends its lines with a newline and a NUL also sends empty lines, which are no errors.
    if known.is_none() && !word.is_empty() {
        say_unknown(word);
    }
    known
}

fn say_unknown(word: &[u8]) {
    const SHOWN: usize = 60;
    let more = if word.len() > SHOWN { "..." } else { "" };
    let (word, known) = (word[..word.len().min(SHOWN)].escape_ascii(), KNOWN.map(|(name, _)| name).join(", "));
    output::say(format_args!(
        "--control: the unknown command `{word}{more}` is ignored; the known commands are {known}"
    ));
}
