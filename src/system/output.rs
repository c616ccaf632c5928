//! The program's own stdout and stderr: checks whether their readers still exist, redirects them, and writes messages.

use std::{
    borrow::Cow,
    fs::{File, OpenOptions},
    io::{self, IsTerminal, Write},
    os::fd::{AsFd, BorrowedFd},
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicI32, AtomicPtr, Ordering, Ordering::SeqCst},
    },
};

use perf_prof_format::control_characters::text_for_terminal;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{fstat, fstatvfs},
    io::{Errno, write},
    stdio::{dup2_stderr, dup2_stdout},
    termios::tcgetwinsize,
};

/// The stderr from before the first call of [`append_to`].
static FIRST_STDERR: OnceLock<File> = OnceLock::new();
/// The errno of the last failed write to stdout or stderr; 0 if no write failed.
static WRITE_ERROR: AtomicI32 = AtomicI32::new(0);

/// Returns whether stdout or stderr is a pipe or socket that its reader has closed.
pub fn reader_is_gone() -> bool {
    is_broken(io::stdout().as_fd()) || is_broken(io::stderr().as_fd())
}

fn is_broken(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default())) == Ok(1) && fds[0].revents().contains(PollFlags::ERR)
}

/// Redirects stdout and stderr to /dev/null if their reader has closed them. Later writes then do not fail while the
/// program ends.
pub fn discard() {
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        // dup2 replaces a descriptor atomically. dup2 cannot fail here, because all descriptors are open.
        if is_broken(io::stdout().as_fd()) {
            let _ = dup2_stdout(&null);
        }
        if is_broken(io::stderr().as_fd()) {
            let _ = dup2_stderr(&null);
        }
    }
}

/// Returns the error of a write to stdout if the device of stdout is full.
pub fn full_stdout() -> Option<io::Error> {
    let stdout = io::stdout();
    let is_full = || fstatvfs(&stdout).is_ok_and(|of| of.f_blocks != 0 && of.f_bavail == 0);
    // /dev/full refuses even a write of 0 bytes. Other full devices accept it.
    let errno = write(&stdout, &[]).err().or_else(|| is_full().then_some(Errno::NOSPC))?;
    (errno == Errno::NOSPC).then(|| errno.into())
}

/// Redirects stdout to /dev/null.
pub fn discard_stdout() {
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = dup2_stdout(&null);
    }
}

/// Redirects stdout and stderr to the end of the file `path`, and creates the file if necessary. If a later message
/// cannot be written to the file, the message goes to the stderr from before the first redirection.
pub fn append_to(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    if let (None, Ok(stderr)) = (FIRST_STDERR.get(), io::stderr().as_fd().try_clone_to_owned()) {
        // `set` fails only if a value is set already. Only this function sets it.
        let _ = FIRST_STDERR.set(File::from(stderr));
    }
    dup2_stdout(&file)?;
    dup2_stderr(&file)?;
    Ok(())
}

/// Returns the standard output as a file, for binary data.
pub fn binary() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Returns the number of columns of the terminal, if stdout is a terminal.
pub fn terminal_width() -> Option<usize> {
    terminal_size().map(|(columns, _)| columns)
}

/// Returns the numbers of columns and lines of the terminal, if stdout is a terminal. The number of lines is 0 if the
/// terminal does not report it.
pub fn terminal_size() -> Option<(usize, usize)> {
    // Both numbers are 0 if the terminal does not report its size.
    let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col != 0)?;
    Some((size.ws_col.into(), size.ws_row.into()))
}

/// The function that [`before_messages`] has set; null if there is none. The function writes output that waits in other
/// buffers, such as Python's.
static WRITE_WAITING: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Sets a function that is called before each message. The function has to write buffered output, so that messages and
/// output keep their order. `None` removes the function.
pub fn before_messages(function: Option<fn()>) {
    WRITE_WAITING.store(function.map_or(std::ptr::null_mut(), |function| function as *mut ()), SeqCst);
}

fn write_waiting() {
    let function = WRITE_WAITING.load(SeqCst);
    if !function.is_null() {
        // SAFETY: `before_messages` stored a function of this type.
        unsafe { std::mem::transmute::<*mut (), fn()>(function)() }
    }
}

/// Returns whether stdout and stderr are the same file.
pub fn are_the_same() -> bool {
    let of = |fd: BorrowedFd<'_>| fstat(fd).ok().map(|found| (found.st_dev, found.st_ino));
    let out = of(io::stdout().as_fd());
    out.is_some() && out == of(io::stderr().as_fd())
}

/// The function that receives the messages instead of stderr; null if there is none.
static RECEIVER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Sets a function that receives each message instead of stderr, for programs that use perf-prof as a library. `None`
/// removes the function. Returns the previous function.
pub fn send_messages_to(function: Option<fn(&str)>) -> Option<fn(&str)> {
    let before = receiver();
    RECEIVER.store(function.map_or(std::ptr::null_mut(), |function| function as *mut ()), SeqCst);
    before
}

fn receiver() -> Option<fn(&str)> {
    let function = RECEIVER.load(SeqCst);
    // SAFETY: `send_messages_to` stored a function of this type.
    (!function.is_null()).then(|| unsafe { std::mem::transmute::<*mut (), fn(&str)>(function) })
}

/// Writes a message about lost events to stderr. Does nothing if a program receives the messages, because such a
/// program reads the counts of lost events instead.
pub fn say_lost(text: impl std::fmt::Display) {
    if receiver().is_none() {
        say(text);
    }
}

/// Writes a message of perf-prof to stderr as one line. If stderr has no reader, this is not an error. On a terminal,
/// control characters are shown as text, because the message may contain names of tasks and files.
pub fn say(text: impl std::fmt::Display) {
    match receiver() {
        Some(receive) => receive(&text.to_string()),
        None => write_line(&format!("perf-prof: {}", shown_on_stderr(&text.to_string()))),
    }
}

/// Returns a number with the form of its noun: `1 sample`, `2 samples`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Returns a message as it is shown on stderr.
pub fn shown_on_stderr(text: &str) -> Cow<'_, str> {
    if io::stderr().is_terminal() { text_for_terminal(text) } else { text.into() }
}

/// Writes a line to stderr without a prefix. If this fails, writes the line to the stderr from before [`append_to`].
pub fn write_line(text: &str) {
    write_waiting();
    let line = format!("{text}\n");
    let Err(error) = io::stderr().write_all(line.as_bytes()) else { return };
    note_write_error(&error);
    if let Some(mut stderr) = FIRST_STDERR.get() {
        // If this write fails too, the line cannot be shown anywhere.
        let _ = stderr.write_all(line.as_bytes());
    }
}

/// Remembers the errno of a failed write to stdout or stderr. EPIPE and EBADF are not remembered: the stream was closed
/// on purpose.
pub fn note_write_error(error: &io::Error) {
    match error.raw_os_error() {
        None | Some(libc::EPIPE | libc::EBADF) => {}
        Some(errno) => WRITE_ERROR.store(errno, Ordering::Relaxed),
    }
}

/// Returns the last error that [`note_write_error`] remembered.
pub fn write_error() -> Option<io::Error> {
    match WRITE_ERROR.load(Ordering::Relaxed) {
        0 => None,
        errno => Some(io::Error::from_raw_os_error(errno)),
    }
}

/// Writes a line to stdout. Ignores errors: the script's next write notices a closed pipe.
pub fn print_line(text: &str) {
    write_waiting();
    let _ = io::stdout().write_all(format!("{text}\n").as_bytes());
}
