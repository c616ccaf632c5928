//! The program's own standard output and error: whether somebody still reads them, and where they go.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::fd::{AsRawFd, RawFd},
    path::Path,
};

/// Whether stdout or stderr is a pipe or socket whose reader is gone.
pub fn reader_is_gone() -> bool {
    [libc::STDOUT_FILENO, libc::STDERR_FILENO].into_iter().any(is_broken)
}

fn is_broken(fd: RawFd) -> bool {
    let mut poll = libc::pollfd { fd, events: 0, revents: 0 };
    // SAFETY: one valid pollfd, and a timeout of zero.
    let ready = unsafe { libc::poll(&mut poll, 1, 0) };
    ready == 1 && poll.revents & libc::POLLERR != 0
}

/// Sends what is written to a broken stdout or stderr nowhere, so that the end of the program is quiet.
pub fn discard() {
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        for fd in [libc::STDOUT_FILENO, libc::STDERR_FILENO] {
            if is_broken(fd) {
                // SAFETY: both descriptors are open; dup2 replaces the broken one atomically.
                unsafe { libc::dup2(null.as_raw_fd(), fd) };
            }
        }
    }
}

/// Appends stdout and stderr to a file from now on.
pub fn append_to(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    for fd in [libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: the file's descriptor is open; dup2 replaces the standard one atomically.
        if unsafe { libc::dup2(file.as_raw_fd(), fd) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The standard output, for what is not text.
pub fn binary() -> io::Result<File> {
    use std::os::fd::AsFd;
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Writes a line of the program's own to stderr. A stderr that nobody reads is no reason to fail.
pub fn say(text: impl std::fmt::Display) {
    write_line(&format!("perf-prof: {text}"));
}

/// Writes a line to stderr as it is.
pub fn write_line(text: &str) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Writes a line to stdout. A closed pipe is noticed when the script writes.
pub fn print_line(text: &str) {
    let _ = io::stdout().write_all(format!("{text}\n").as_bytes());
}
