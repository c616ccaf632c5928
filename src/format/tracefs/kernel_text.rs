//! Writes the text of events for which the kernel does not use the print format. Does not know how print formats work.

use std::io::Write;

use super::{EventFormat, Field, Kernel, print_fmt::ctype::IntType};
use crate::value::Value;

/// The print format or the kernel function that writes an event's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextSource {
    /// The print format.
    PrintFmt,
    /// `print_syscall_enter` in `kernel/trace/trace_syscalls.c`.
    SyscallEnter,
    /// `print_syscall_exit`, in the same file.
    SyscallExit,
    /// `print_kprobe_event` and similar functions. Only the addresses at the start of the text differ from the print
    /// format.
    Probe,
    /// `trace_fn_trace` in `kernel/trace/trace_output.c`.
    Function,
    /// `trace_raw_data`, in the same file.
    RawData,
}

impl TextSource {
    /// Returns the text source for an event with this system, name and fields.
    pub fn for_event(system: &str, name: &str, fields: &[Field]) -> TextSource {
        match (system, name) {
            ("syscalls", _) if name.starts_with("sys_enter_") => TextSource::SyscallEnter,
            ("syscalls", _) if name.starts_with("sys_exit_") => TextSource::SyscallExit,
            ("ftrace", "function") => TextSource::Function,
            ("ftrace", "raw_data") => TextSource::RawData,
            _ if fields.iter().any(|field| matches!(&*field.name, "__probe_ip" | "__probe_func")) => TextSource::Probe,
            _ => TextSource::PrintFmt,
        }
    }

    /// Appends the text. Returns `false` if the caller has to use the print format instead.
    pub fn write(self, format: &EventFormat, raw: &[u8], kernel: &dyn Kernel, out: &mut Vec<u8>) -> bool {
        match self {
            TextSource::PrintFmt => return false,
            TextSource::SyscallEnter => syscall_enter(format, raw, out),
            TextSource::SyscallExit => syscall_exit(format, raw, out),
            TextSource::Probe => return probe(format, raw, kernel, out).is_some(),
            TextSource::Function => return function(format, raw, kernel, out).is_some(),
            TextSource::RawData => return raw_data(format, raw, out).is_some(),
        }
        true
    }
}

/// Appends text like `(do_sys_open+0x0/0x60) flags=0x2`. The print format would show the address of the probe as a
/// number. The address of a user-space probe stays a number, because the kernel has no symbols of programs.
fn probe(format: &EventFormat, raw: &[u8], kernel: &dyn Kernel, out: &mut Vec<u8>) -> Option<()> {
    let print_fmt = format.print_fmt().ok()?;
    let mut text = Vec::new();
    print_fmt.show(raw, kernel, &mut text);
    let rest = &text[text.iter().position(|&b| b == b')')?..];

    out.push(b'(');
    match (format.field("__probe_ip"), format.field("__probe_func"), format.field("__probe_ret_ip")) {
        (Some(ip), ..) => probe_address(address(ip, raw)?, Offset::Shown, kernel, out),
        (None, Some(func), Some(ret_ip)) => {
            let (func, ret_ip) = (address(func, raw)?, address(ret_ip, raw)?);
            probe_address(ret_ip, Offset::Shown, kernel, out);
            out.extend(b" <- ");
            probe_address(func, Offset::Hidden, kernel, out);
        }
        _ => return None,
    }
    out.extend(rest);
    Some(())
}

fn probe_address(addr: u64, offset: Offset, kernel: &dyn Kernel, out: &mut Vec<u8>) {
    // The upper half of the address space belongs to the kernel.
    if (addr as i64) < 0 {
        return kernel_address(addr, offset, kernel, out);
    }
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{addr:#x}");
}

/// Appends text like `schedule <-worker_thread`.
fn function(format: &EventFormat, raw: &[u8], kernel: &dyn Kernel, out: &mut Vec<u8>) -> Option<()> {
    let (ip, parent_ip) = (address(format.field("ip")?, raw)?, address(format.field("parent_ip")?, raw)?);
    kernel_address(ip, Offset::Hidden, kernel, out);
    if parent_ip != 0 {
        out.extend(b" <-");
        kernel_address(parent_ip, Offset::Hidden, kernel, out);
    }
    Some(())
}

/// Appends text like `# 1f buf: 01 02`.
fn raw_data(format: &EventFormat, raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let id = address(format.field("id")?, raw)?;
    // Writing to a Vec cannot fail.
    let _ = write!(out, "# {id:x} buf:");
    for byte in raw.get(format.field("buf")?.offset..)? {
        let _ = write!(out, " {byte:02x}");
    }
    Some(())
}

fn address(field: &Field, raw: &[u8]) -> Option<u64> {
    IntType::new(field.size as u8, false).load(raw, field.offset)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Offset {
    Shown,
    Hidden,
}

/// Appends an address as `seq_print_ip_sym` shows it. If the offset is not shown, the module is not shown either.
fn kernel_address(addr: u64, offset: Offset, kernel: &dyn Kernel, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = match kernel.symbol(addr) {
        _ if addr == 0 => write!(out, "0"),
        None => write!(out, "{addr:#010x}"),
        Some(symbol) if offset == Offset::Hidden => write!(out, "{}", symbol.name),
        Some(symbol) => {
            let module = symbol.module.map(|module| format!(" [{module}]")).unwrap_or_default();
            write!(out, "{}+{:#x}/{:#x}{module}", symbol.name, symbol.offset, symbol.size)
        }
    };
}

/// Appends text like `sys_openat(dfd: 0xffffff9c, filename: 0x7f21c4 "/etc/passwd", flags: 2)`. Values below 10 have no
/// `0x`. If the record contains the string of an argument, the string is shown, as the kernel does since Linux 6.19.
fn syscall_enter(format: &EventFormat, raw: &[u8], out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "sys_{}(", format.name.strip_prefix("sys_enter_").unwrap_or(&format.name));
    let arguments = format.fields().iter().filter(|field| field.name != "__syscall_nr" && !format.is_of_string(field));
    for (i, field) in arguments.enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        let _ = write!(out, "{comma}{}: ", field.name);
        let _ = match IntType::new(field.size as u8, false).load(raw, field.offset) {
            None => write!(out, "?"),
            Some(value) if value < 10 => write!(out, "{value}"),
            Some(value) => write!(out, "{value:#x}"),
        };
        if let Some(Value::Str(text)) = format.string_of(&field.name).and_then(|string| string.value(raw)) {
            let _ = write!(out, " {:?}", String::from_utf8_lossy(text));
        }
    }
    out.push(b')');
}

/// Appends text like `sys_openat -> 0x3`.
fn syscall_exit(format: &EventFormat, raw: &[u8], out: &mut Vec<u8>) {
    let ret = format.field("ret").and_then(|field| IntType::ULONG.load(raw, field.offset));
    let name = format.name.strip_prefix("sys_exit_").unwrap_or(&format.name);
    // Writing to a Vec cannot fail.
    let _ = match ret {
        Some(ret) => write!(out, "sys_{name} -> {ret:#x}"),
        None => write!(out, "sys_{name} -> ?"),
    };
}
