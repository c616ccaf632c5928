//! A filter of seccomp, as the profiles of containers have: the kernel refuses a system call.

use std::{ffi::c_long, io, os::unix::process::CommandExt, process::Command};

/// The offsets in `struct seccomp_data` of the number of the call and of the lower half of its first argument.
const NUMBER: u32 = 0;
const FIRST: u32 = 16;

/// Lets the kernel refuse a system call of the command with EPERM: each one, or those with this first argument.
pub fn refuse(command: &mut Command, call: c_long, first: Option<u32>) {
    let mut program = program(call, first);
    // SAFETY: the filter is installed without an allocation, so it is async-signal-safe.
    unsafe {
        command.pre_exec(move || install(&mut program));
    }
}

/// Lets the kernel refuse a system call of this thread, until the thread ends.
pub fn refuse_in_this_thread(call: c_long, first: Option<u32>) {
    install(&mut program(call, first)).unwrap();
}

fn program(call: c_long, first: Option<u32>) -> Vec<libc::sock_filter> {
    let load = |offset: u32| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    let unless_equal = |value: u32, skipped: u8| {
        // SAFETY: plain numbers are put together.
        unsafe { libc::BPF_JUMP((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, value, 0, skipped) }
    };
    let with_first = first.map(|first| [load(FIRST), unless_equal(first, 1)]);
    let mut program = vec![load(NUMBER), unless_equal(call as u32, if first.is_some() { 3 } else { 1 })];
    program.extend(with_first.into_iter().flatten());
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    program
}

/// Installs a filter in this thread, and in the programs that it executes.
fn install(program: &mut [libc::sock_filter]) -> io::Result<()> {
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program lives across the calls.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        match libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn statement(code: u32, value: u32) -> libc::sock_filter {
    // SAFETY: plain numbers are put together.
    unsafe { libc::BPF_STMT(code as u16, value) }
}
