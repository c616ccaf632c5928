//! The text of a system call in a line of `perf-prof trace`: its name, its arguments with their names, and its result.

use std::{borrow::Cow, collections::HashMap, io::Write as _};

use perf_prof_events::event::{Format, Sample};
use perf_prof_format::{
    abi::{
        path_arguments::{AT_FDCWD, descriptor_arguments, is_descriptor},
        string_arguments::{MOST_ARGUMENTS, string_arguments},
    },
    tracefs::{EventFormat, Field, FieldKind},
    value::{self, Value},
};
use perf_prof_session::spine::RecordingFacts;
use perf_prof_system::tracefs::Tracefs;

use super::span_text;

/// The system of the tracepoints of system calls. Their formats contain the names of arguments.
const SYSTEM: &str = "syscalls";
/// The field of these tracepoints that holds the number of the system call. It is not an argument of the call.
const NUMBER: &str = "__syscall_nr";

/// Writes system calls. It caches the arguments of each system call.
pub(super) struct SystemCallText {
    /// `None` if the calls are those of another kernel, or if the tracepoints of this kernel cannot be read.
    tracefs: Option<Tracefs>,
    arguments: HashMap<Vec<u8>, Vec<Argument>>,
}

/// An argument of a system call.
struct Argument {
    /// The kernel's name for it; empty if it is not known.
    name: String,
    /// The name of the field with the text of the argument: the string to which the argument points, or the path of the
    /// file whose descriptor the argument is.
    string: String,
    form: ArgumentForm,
}

/// How the value of an argument is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ArgumentForm {
    /// A signed 32-bit number, for example a file descriptor.
    Int,
    /// An unsigned number.
    Size,
    /// A hexadecimal number, for bits and addresses.
    Hex,
    /// An octal number, for the permissions of a file.
    Octal,
}

impl Argument {
    fn new(name: &str, form: ArgumentForm) -> Argument {
        Argument { name: name.to_owned(), string: format!("{name}_str"), form }
    }

    fn of_field(field: &Field) -> Argument {
        let (name, c_type) = (field.name.as_str(), field.c_type());
        let are_bits = ["flags", "prot", "mask", "options", "events"].iter().any(|part| name.contains(part));
        let form = match field.kind {
            _ if name == "mode" || c_type == "umode_t" => ArgumentForm::Octal,
            _ if is_descriptor(name) => ArgumentForm::Int,
            FieldKind::Pointer => ArgumentForm::Hex,
            FieldKind::Int { .. } if are_bits => ArgumentForm::Hex,
            FieldKind::Int { .. } if ["size_t", "unsigned int", "loff_t", "u32", "u64"].contains(&c_type.as_str()) => {
                ArgumentForm::Size
            }
            FieldKind::Int { width: 4, .. } => ArgumentForm::Int,
            _ => ArgumentForm::Hex,
        };
        Argument::new(name, form)
    }

    fn write_name(&self, out: &mut Vec<u8>) {
        if !self.name.is_empty() {
            // Writing to a Vec cannot fail.
            let _ = write!(out, "{}: ", self.name);
        }
    }

    /// Writes the argument with the string that it points to.
    fn write_string(&self, text: &[u8], out: &mut Vec<u8>) {
        self.write_name(out);
        let _ = write!(out, "{:?}", String::from_utf8_lossy(text));
    }

    fn write(&self, value: u64, out: &mut Vec<u8>) {
        self.write_name(out);
        let _ = match self.form {
            ArgumentForm::Int if self.name.ends_with("dfd") && value as i32 == AT_FDCWD => write!(out, "AT_FDCWD"),
            ArgumentForm::Int => write!(out, "{}", value as i32),
            ArgumentForm::Size => write!(out, "{value}"),
            ArgumentForm::Hex => write!(out, "{value:#x}"),
            ArgumentForm::Octal if value == 0 => write!(out, "0"),
            ArgumentForm::Octal => write!(out, "0{value:o}"),
        };
    }
}

impl SystemCallText {
    /// Creates the writer. `recording` is the recording that the calls come from; `None` for live calls.
    pub fn new(recording: Option<&RecordingFacts>) -> Self {
        let are_of_this_kernel = recording.is_none_or(|recording| recording.is_of_this_kernel);
        Self { tracefs: Tracefs::find().ok().filter(|_| are_of_this_kernel), arguments: HashMap::new() }
    }

    /// Returns whether this is an event of the source `syscall`.
    pub fn is_system_call(sample: &Sample<'_>) -> bool {
        matches!(&sample.event.format, Format::Span(span) if span.is_source() && span.format.name == "syscall")
    }

    /// Writes a system call: `openat(dfd: AT_FDCWD, ...) = -1 ENOENT (0.005 ms)`.
    pub fn write(&mut self, sample: &Sample<'_>, out: &mut Vec<u8>) {
        let Some(format) = sample.event.format.tracepoint() else { return };
        let value = |name: &str| format.field(name).and_then(|field| sample.field(field));
        let text = |name: &str| match value(name) {
            Some(Value::Str(text)) => text,
            _ => &[],
        };
        let (name, errno) = (text("name"), text("errno"));
        let words: Vec<u64> = match value("args") {
            Some(Value::Words(bytes)) => value::words(bytes).collect(),
            _ => Vec::new(),
        };
        out.extend_from_slice(name);
        out.push(b'(');
        for (at, (argument, &word)) in self.arguments(name).iter().zip(&words).enumerate() {
            if at > 0 {
                out.extend_from_slice(b", ");
            }
            match value(&argument.string) {
                Some(Value::Str(text)) if argument.form == ArgumentForm::Hex => argument.write_string(text, out),
                Some(Value::Str(path)) => {
                    argument.write(word, out);
                    let _ = write!(out, "<{}>", String::from_utf8_lossy(path).escape_debug());
                }
                _ => argument.write(word, out),
            }
        }
        out.extend_from_slice(b") = ");
        let is_open = value("open") == Some(Value::Bool(true));
        let result: Cow<'_, str> = match value("ret") {
            _ if is_open => "?".into(),
            _ if !errno.is_empty() => format!("-1 {}", String::from_utf8_lossy(errno)).into(),
            // The result is an address, for example of mmap().
            Some(Value::Int(ret)) if ret > i64::from(u32::MAX) => format!("{ret:#x}").into(),
            Some(Value::Int(ret)) => ret.to_string().into(),
            _ => "?".into(),
        };
        let duration = if let Some(Value::Uint(duration)) = value("duration") { duration } else { 0 };
        let _ = write!(out, "{result} (");
        span_text::write_time(duration, out);
        out.push(b')');
    }

    /// Returns the arguments of the system call with this name.
    fn arguments(&mut self, name: &[u8]) -> &[Argument] {
        // Most names are known already, so the name is copied only if it is not.
        if !self.arguments.contains_key(name) {
            let call = String::from_utf8_lossy(name);
            let found = self.tracefs.as_ref().and_then(|tracefs| arguments_of_kernel(tracefs, &call));
            self.arguments.insert(name.to_owned(), found.unwrap_or_else(|| known_arguments(&call)));
        }
        self.arguments.get(name).map_or(&[], Vec::as_slice)
    }
}

/// Returns the arguments that the tracepoint of a system call has.
fn arguments_of_kernel(tracefs: &Tracefs, name: &str) -> Option<Vec<Argument>> {
    // The kernel names a few tracepoints after its function and not after the system call (SYSCALL_DEFINE in
    // kernel/sys.c).
    let event = match name {
        "uname" => "sys_enter_newuname".to_owned(),
        "stat" | "fstat" | "lstat" => format!("sys_enter_new{name}"),
        "newfstatat" => "sys_enter_newfstatat".to_owned(),
        name => format!("sys_enter_{name}"),
    };
    let format = EventFormat::parse(SYSTEM, &tracefs.format(SYSTEM, &event).ok()?).ok()?;
    Some(format.fields().iter().filter(|field| field.name != NUMBER).map(Argument::of_field).collect())
}

/// Returns all six arguments of a system call. Strings and file descriptors have names, because the kernel's names for them
/// are known without its tracepoints.
fn known_arguments(call: &str) -> Vec<Argument> {
    let find = |known: &[(usize, &'static str)], at| known.iter().find(|(of, _)| *of == at).map(|(_, name)| *name);
    let argument = |at| match find(descriptor_arguments(call), at) {
        Some(descriptor) => Argument::new(descriptor, ArgumentForm::Int),
        None => Argument::new(find(string_arguments(call), at).unwrap_or_default(), ArgumentForm::Hex),
    };
    (0..MOST_ARGUMENTS).map(argument).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_written_by_their_types() {
        let text = "name: sys_enter_x\nID: 7\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
            \tfield:int dfd;\toffset:16;\tsize:8;\tsigned:0;\n\
            \tfield:const char * filename;\toffset:24;\tsize:8;\tsigned:0;\n\
            \tfield:int flags;\toffset:32;\tsize:8;\tsigned:0;\n\
            \tfield:umode_t mode;\toffset:40;\tsize:8;\tsigned:0;\n\
            \tfield:size_t count;\toffset:48;\tsize:8;\tsigned:0;\n\nprint fmt: \"\"\n";
        let format = EventFormat::parse(SYSTEM, text).unwrap();
        let words = [u64::from(AT_FDCWD as u32), 0x7000, 0x80000, 0o644, 4096];
        let mut out = Vec::new();
        for (field, word) in format.fields().iter().zip(words) {
            Argument::of_field(field).write(word, &mut out);
            out.push(b' ');
        }
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "dfd: AT_FDCWD filename: 0x7000 flags: 0x80000 mode: 0644 count: 4096 ");
    }

    #[test]
    fn strings_and_descriptors_have_names_without_the_tracepoint() {
        let text = |call: &str| {
            let mut out = Vec::new();
            known_arguments(call).iter().zip(1..).for_each(|(argument, word)| {
                argument.write(word, &mut out);
                out.push(b' ');
            });
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text("openat"), "dfd: 1 filename: 0x2 0x3 0x4 0x5 0x6 ");
        assert_eq!(text("read"), "fd: 1 0x2 0x3 0x4 0x5 0x6 ");
        assert_eq!(text("getppid"), "0x1 0x2 0x3 0x4 0x5 0x6 ");
    }
}
