//! Events whose text the kernel does not make from their print format. Knows nothing of how print formats work.

use std::io::Write;

use super::{EventFormat, Kernel, print_fmt::ctype::IntType};

/// Who makes an event's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    /// The print format.
    PrintFmt,
    /// `print_syscall_enter` in `kernel/trace/trace_syscalls.c`.
    SyscallEnter,
    /// `print_syscall_exit`, there too.
    SyscallExit,
}

impl Writer {
    pub fn of(system: &str, name: &str, _print_fmt: &str) -> Writer {
        match system {
            "syscalls" if name.starts_with("sys_enter_") => Writer::SyscallEnter,
            "syscalls" if name.starts_with("sys_exit_") => Writer::SyscallExit,
            _ => Writer::PrintFmt,
        }
    }

    /// Appends the text; `false` when it is the print format's.
    pub fn write(self, format: &EventFormat, raw: &[u8], _kernel: &dyn Kernel, out: &mut Vec<u8>) -> bool {
        match self {
            Writer::PrintFmt => return false,
            Writer::SyscallEnter => syscall_enter(format, raw, out),
            Writer::SyscallExit => syscall_exit(format, raw, out),
        }
        true
    }
}

/// `sys_openat(dfd: 0xffffff9c, flags: 2)`: what is below 10 is decimal, and has no prefix.
fn syscall_enter(format: &EventFormat, raw: &[u8], out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "sys_{}(", format.name.strip_prefix("sys_enter_").unwrap_or(&format.name));
    let arguments = format.fields().iter().filter(|field| field.name != "__syscall_nr");
    for (i, field) in arguments.enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        let _ = write!(out, "{comma}{}: ", field.name);
        let _ = match IntType::new(field.size as u8, false).load(raw, field.offset) {
            None => write!(out, "?"),
            Some(value) if value < 10 => write!(out, "{value}"),
            Some(value) => write!(out, "{value:#x}"),
        };
    }
    out.push(b')');
}

/// `sys_openat -> 0x3`.
fn syscall_exit(format: &EventFormat, raw: &[u8], out: &mut Vec<u8>) {
    let ret = format.field("ret").and_then(|field| IntType::ULONG.load(raw, field.offset));
    let name = format.name.strip_prefix("sys_exit_").unwrap_or(&format.name);
    // Writing to a Vec cannot fail.
    let _ = match ret {
        Some(ret) => write!(out, "sys_{name} -> {ret:#x}"),
        None => write!(out, "sys_{name} -> ?"),
    };
}
