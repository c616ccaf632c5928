//! Commands to a recording that runs: `enable`, `disable`, `ping` and `stop`, a line each, as perf takes them. Each that is
//! known is answered with `ack` when it is done; of others is said which there are.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::{
        fd::{AsRawFd, RawFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
    thread,
};

use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, Sender};

use crate::{
    spec::Control as Place,
    sys::{epoll::Epoll, eventfd, file, output, signals},
};

/// All commands, by their names.
const KNOWN: [(&str, Command); 4] =
    [("enable", Command::Enable), ("disable", Command::Disable), ("ping", Command::Ping), ("stop", Command::Stop)];

/// Nobody types a line as long as this; the rest of one is not kept.
const LONGEST_LINE: usize = 4096;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The events are to be on.
    Enable,
    /// The events are to be off.
    Disable,
    /// Nothing but an answer.
    Ping,
    /// The recording is to end.
    Stop,
}

/// Commands that came.
#[derive(Debug)]
pub struct Control {
    commands: Receiver<Command>,
    ack: Option<File>,
}

impl Control {
    /// Opens the place. The eventfd `wake` becomes readable when a command came.
    pub fn open(place: &Place, wake: RawFd) -> Result<Control> {
        // Like this a pipe neither waits for another side nor ends when that leaves.
        let fifo = |path: &Path| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
            options.open(path).with_context(|| format!("--control: cannot open '{}'", path.display()))
        };
        let inherited = |fd| file::duplicate(fd).with_context(|| format!("--control: descriptor {fd} is not open"));
        let (control, ack) = match place {
            Place::Fd(control, ack) => (inherited(*control)?, ack.map(inherited).transpose()?),
            Place::Fifo(control, ack) => (fifo(control)?, ack.as_deref().map(fifo).transpose()?),
        };
        let epoll = Epoll::new()?;
        epoll.add(control.as_raw_fd(), 0).context("--control: what is no pipe cannot be waited for")?;
        let (sender, commands) = crossbeam_channel::unbounded();
        let listen = move || listen(control, epoll, &sender, wake);
        thread::Builder::new().name("perf-prof-control".to_owned()).spawn(listen).context("--control")?;
        Ok(Control { commands, ack })
    }

    /// The next command, if one came.
    pub fn next(&self) -> Option<Command> {
        self.commands.try_recv().ok()
    }

    /// Says that a command is done.
    pub fn ack(&mut self) {
        // Who does not wait for the answer may be gone.
        if let Some(ack) = &mut self.ack {
            let _ = ack.write_all(b"ack\n");
        }
    }
}

/// Until the other side is gone, or the recording.
fn listen(mut control: File, mut epoll: Epoll, commands: &Sender<Command>, wake: RawFd) {
    signals::block_in_this_thread();
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

/// The command of a line. Of one that is unknown the user is told here, and whoever sent it by there being no answer, as perf
/// gives none (`evlist__ctlfd_process()` in `tools/perf/util/evlist.c`).
fn command(line: &[u8]) -> Option<Command> {
    let word = line.trim_ascii();
    let known = KNOWN.into_iter().find(|(name, _)| name.as_bytes() == word).map(|(_, command)| command);
    // What ends its lines with a newline and a NUL sends empty ones.
    if known.is_none() && !word.is_empty() {
        say_unknown(word);
    }
    known
}

fn say_unknown(word: &[u8]) {
    const SHOWN: usize = 60;
    let more = if word.len() > SHOWN { "..." } else { "" };
    let (word, known) = (word[..word.len().min(SHOWN)].escape_ascii(), KNOWN.map(|(name, _)| name).join(", "));
    output::say(format_args!("--control: unknown command `{word}{more}`, which does nothing; known are {known}"));
}
