//! A terminal as the stdout of a program.

use std::{
    fs::File,
    io::Read,
    os::fd::{FromRawFd, OwnedFd},
    process::{Command, Stdio},
};

/// Runs a command with a terminal as its stdout. Returns what it printed.
pub fn on_terminal(command: &mut Command) -> Vec<u8> {
    let (mut master, mut slave) = (-1, -1);
    // SAFETY: the descriptors are written to live integers. Null pointers stand for no name and usual settings.
    let made = unsafe {
        libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut())
    };
    assert_eq!(made, 0);
    // SAFETY: the call has just made both descriptors.
    let (mut master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    let mut child = command.stdout(slave).stderr(Stdio::null()).spawn().unwrap();
    // The command object also owns the other end. If it kept it, the read would never end.
    command.stdout(Stdio::null());
    let mut shown = Vec::new();
    // At the end, reading from a terminal fails with EIO.
    let _ = master.read_to_end(&mut shown);
    child.wait().unwrap();
    shown
}
