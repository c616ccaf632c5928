//! Formats with additional fields for strings in user space. The addresses of these strings are in fields that the
//! event already has.
//!
//! A tracepoint records the address of a string, not the string. A BPF program reads the string and writes its own
//! record: the tracepoint's fields at the same offsets, and then the strings. The format of this record is the
//! tracepoint's format with fields for the strings.

use thiserror::Error;

use super::{ElementType, EventFormat, Field, FieldKind, FormatError, format::PRINT_FMT};
use crate::abi::string_arguments::MOST_ARGUMENTS;

/// The maximum size of a string, in bytes, with the NUL at its end.
pub const LONGEST_STRING: usize = 256;
/// The characters at the end of a string that was cut off.
pub const CUT_MARK: &str = "...";
/// The event that ends any system call.
const END_OF_CALL: (&str, &str) = ("raw_syscalls", "sys_exit");
/// The prefix of the names for the elements of [`ARGUMENTS`]: `arg0`, `arg1` and so on.
const ARGUMENT: &str = "arg";
/// The suffix of the names of fields that contain a string.
const STRING: &str = "_str";
/// The suffix of the names of fields that are true if a string was cut off.
const CUT: &str = "_cut";
/// The type of a field with a string. The string is absent if its memory could not be read.
pub const USER_TEXT: &str = "__data_loc char __user[]";
/// The prefix and the suffix of the names of fields in which the kernel itself records a string, since 6.19:
/// `__filename_val` for `filename` (`syscall_get_enter_fields()` in kernel/trace/trace_syscalls.c).
const OF_KERNEL: (&str, &str) = ("__", "_val");

/// The field of `raw_syscalls:sys_enter` with the arguments of the system call. Its strings are `arg0_str`, `arg1_str`
/// and so on.
pub const ARGUMENTS: &str = "args";

/// The folders of the task from which a system call looks up files: the current folder and the root. The fields with
/// the paths of these folders come after the fields of the arguments.
const FOLDERS: [&str; 2] = ["cwd", "root"];
/// The field with the path of the current folder.
pub const CURRENT_FOLDER: &str = "cwd_str";
/// The field with the path of the root.
pub const ROOT_FOLDER: &str = "root_str";

/// The field of `raw_syscalls:sys_enter` with the number of the task's mount namespace; 0 if it is not known. It comes with
/// the strings of the arguments.
pub const MOUNT_NAMESPACE: &str = "mnt_ns";
/// The field of `raw_syscalls:sys_enter` with the id of this namespace, which no later one gets. The kernel gives the number of a
/// namespace that has ended to another one.
pub const MOUNT_NAMESPACE_ID: &str = "mnt_ns_id";

/// Returns the name of the field that contains the string of an argument, such as `arg0_str`. The events of
/// `raw_syscalls` have these fields. The string is the text to which the argument points. If the argument is a file
/// descriptor, the string is the path of the file.
pub fn string_of_argument(index: usize) -> &'static str {
    ["arg0_str", "arg1_str", "arg2_str", "arg3_str", "arg4_str", "arg5_str"].get(index).copied().unwrap_or_default()
}

/// Why an event cannot have the string of a field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StringError {
    /// There is no such field.
    #[error("{event} has no field `{field}`; its fields that point to strings: {known}")]
    Unknown {
        /// The event.
        event: String,
        /// The field.
        field: String,
        /// The fields that may point to strings.
        known: String,
    },
    /// The field is not an address.
    #[error("the field `{field}` of {event} does not point to a string; fields that do: {known}")]
    NoAddress {
        /// The event.
        event: String,
        /// The field.
        field: String,
        /// The fields that may point to strings.
        known: String,
    },
    /// The event has fields of variable size, so strings cannot be added after them.
    #[error("{event} cannot have `str=`, because its field `{field}` has no fixed size; remove `str=`")]
    Flexible {
        /// The event.
        event: String,
        /// The field.
        field: String,
    },
    /// The format cannot be parsed with the new fields.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// A string in the record that a BPF program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StringPlace {
    /// The location of the string's address.
    pub address: StringAddress,
    /// The offset of the `__data_loc` word, which contains the offset and the length of the string.
    pub location: usize,
    /// The offset of the byte that is 1 if the string was cut off.
    pub cut: usize,
    /// The index of the argument in [`ARGUMENTS`], if the argument is a string only in some system calls. The two
    /// indexes after the arguments stand for the current folder and the root of the task. `None` if the address is in a
    /// field of its own.
    pub argument: Option<usize>,
}

/// The location of a string's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StringAddress {
    /// The address is in 8 bytes of the record, at this offset.
    Field(usize),
    /// The event ends a system call, so no field contains the address. The BPF program stored the address at the start
    /// of the call, because it could not read the string at that time. By the end of the call, the kernel may have
    /// loaded the string's page into memory.
    Kept,
    /// There is no address, because the string is the path of one of the task's folders.
    OfTask,
}

impl EventFormat {
    /// Returns the format with additional fields for the strings to which the fields `names` point: `filename_str` and
    /// `filename_cut` for `filename`. For [`ARGUMENTS`], adds such a pair of fields for each argument.
    pub fn with_strings(&self, names: &[String]) -> Result<EventFormat, StringError> {
        let names: Vec<String> = names.iter().flat_map(|name| self.pointers(name)).collect();
        let event = || format!("{}:{}", self.system, self.name);
        let known = || {
            let names: Vec<&str> =
                self.fields().iter().filter(|f| points_to_text(f)).map(|f| f.name.as_str()).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        let is_flexible =
            |field: &&Field| matches!(field.kind, FieldKind::DataLoc(_) | FieldKind::RelLoc(_)) || field.size == 0;
        let new: Vec<&String> = names.iter().filter(|name| self.field(&format!("{name}{STRING}")).is_none()).collect();
        if let (Some(field), false) = (self.fields().iter().find(is_flexible), new.is_empty()) {
            return Err(StringError::Flexible { event: event(), field: field.name.clone() });
        }
        for name in &new {
            match self.field(name) {
                None if self.argument_index(name).is_some() => {}
                None => return Err(StringError::Unknown { event: event(), field: (*name).clone(), known: known() }),
                Some(field) if field.kind != FieldKind::Pointer || field.size != 8 => {
                    return Err(StringError::NoAddress { event: event(), field: (*name).clone(), known: known() });
                }
                Some(_) => {}
            }
        }
        if new.is_empty() {
            return Ok(self.clone());
        }
        let (head, print_fmt) = self.text().split_once(PRINT_FMT).unwrap_or((self.text(), ""));
        let mut text = head.trim_end().to_owned();
        let first = self.first_string();
        let mut shown = (String::new(), String::new());
        for (at, name) in new.iter().enumerate() {
            let (location, cut) = (first + 4 * at, first + 4 * new.len() + at);
            text += &format!("\n\tfield:{USER_TEXT} {name}{STRING};\toffset:{location};\tsize:4;\tsigned:1;");
            text += &format!("\n\tfield:bool {name}{CUT};\toffset:{cut};\tsize:1;\tsigned:0;");
            shown.0 += &format!(", {name}{STRING}: \\\"%s\\\"");
            shown.1 += &format!(", __get_str({name}{STRING})");
        }
        if self.has_folders() && names.iter().any(|name| self.argument_index(name).is_some()) {
            let offset = (first + 5 * new.len()).next_multiple_of(4);
            text += &format!("\n\tfield:unsigned int {MOUNT_NAMESPACE};\toffset:{offset};\tsize:4;\tsigned:0;");
            let offset = (offset + 4).next_multiple_of(8);
            text += &format!("\n\tfield:u64 {MOUNT_NAMESPACE_ID};\toffset:{offset};\tsize:8;\tsigned:0;");
        }
        text += "\n";
        text += PRINT_FMT;
        // The format string ends at the first `",`. The arguments of the print format come after it.
        match print_fmt.split_once("\",") {
            Some((format, arguments)) => {
                text += &format!("{format}{}\",{}{}\n", shown.0, arguments.trim_end(), shown.1)
            }
            None => text += print_fmt,
        }
        Ok(EventFormat::parse_of(&self.system, &text)?)
    }

    /// Returns the strings that a BPF program has to read, in the order of the record that the program writes, with
    /// their positions in this record.
    pub fn strings(&self) -> Vec<StringPlace> {
        let place = |field: &Field| {
            let name = field.name.strip_suffix(STRING).filter(|_| field.type_text == USER_TEXT)?;
            let cut = self.field(&format!("{name}{CUT}"))?.offset;
            let argument = self.argument_index(name);
            let address = match (argument, self.field(ARGUMENTS)) {
                (Some(MOST_ARGUMENTS..), _) => StringAddress::OfTask,
                (Some(argument), Some(arguments)) => StringAddress::Field(arguments.offset + 8 * argument),
                (Some(_), None) => StringAddress::Kept,
                (None, _) => StringAddress::Field(self.field(name)?.offset),
            };
            Some(StringPlace { address, location: field.offset, cut, argument })
        };
        self.fields().iter().filter_map(place).collect()
    }

    /// Returns the names of the addresses in a field: `arg0`, `arg1` and so on for [`ARGUMENTS`], otherwise the name of
    /// the field.
    fn pointers(&self, name: &str) -> Vec<String> {
        let count = if name == ARGUMENTS { self.argument_count() } else { 0 };
        match count {
            0 => vec![name.to_owned()],
            count => {
                let folders = FOLDERS.iter().filter(|_| self.has_folders()).map(|&name| name.to_owned());
                (0..count).map(|at| format!("{ARGUMENT}{at}")).chain(folders).collect()
            }
        }
    }

    /// Returns whether the event has fields for the task's folders. Only the event at the start of all system calls has
    /// these fields.
    fn has_folders(&self) -> bool {
        self.argument_count() != 0 && self.field(ARGUMENTS).is_some()
    }

    /// Returns the offset at which the strings start in a record. The strings start after all fields.
    pub fn first_string(&self) -> usize {
        self.size().next_multiple_of(8)
    }

    /// Returns the index of an argument by its name in the events of all system calls, such as `arg0`, or the index of
    /// a folder.
    fn argument_index(&self, name: &str) -> Option<usize> {
        if let Some(at) = FOLDERS.iter().position(|folder| *folder == name) {
            return self.has_folders().then_some(MOST_ARGUMENTS + at);
        }
        let at = name.strip_prefix(ARGUMENT)?.parse().ok()?;
        (at < self.argument_count()).then_some(at)
    }

    /// Returns the number of arguments if this is an event of all system calls, otherwise 0.
    fn argument_count(&self) -> usize {
        let is_list = |field: &&Field| matches!(field.kind, FieldKind::Array(ElementType::Int { width: 8, .. }));
        match self.field(ARGUMENTS).filter(is_list) {
            Some(field) => MOST_ARGUMENTS.min(field.size / 8),
            None if (&*self.system, self.name.as_str()) == END_OF_CALL => MOST_ARGUMENTS,
            None => 0,
        }
    }

    /// Returns the field that contains the string to which the field `name` points.
    pub(super) fn string_of(&self, name: &str) -> Option<&Field> {
        self.field(&format!("{name}{STRING}"))
    }

    /// Returns whether a field contains the string of another field, or the flag that the string of another field was
    /// cut off.
    pub(super) fn is_of_string(&self, field: &Field) -> bool {
        let is_recorded = || {
            self.fields().iter().any(|other| {
                self.recorded_string(&format!("{}{STRING}", other.name))
                    .is_some_and(|string| string.offset == field.offset)
            })
        };
        field.may_be_absent()
            || field.name.strip_suffix(CUT).and_then(|name| self.string_of(name)).is_some_and(Field::may_be_absent)
            || field.name.starts_with(OF_KERNEL.0) && is_recorded()
    }

    /// Returns the field with the string if the kernel itself has recorded the string: `__filename_val` for the name
    /// `filename_str`.
    pub(super) fn recorded_string(&self, name: &str) -> Option<&Field> {
        let (before, behind) = OF_KERNEL;
        let name = name.strip_suffix(STRING)?;
        let is_it =
            |field: &&Field| field.name.strip_prefix(before).and_then(|rest| rest.strip_suffix(behind)) == Some(name);
        self.fields().iter().find(is_it)
    }
}

/// Returns whether a field is the address of a text. The type of such a field is `const char *`.
pub fn points_to_text(field: &Field) -> bool {
    let is_text = |text: &str| text.split_whitespace().filter(|word| *word != "__user").eq(["const", "char", "*"]);
    field.kind == FieldKind::Pointer && field.size == 8 && is_text(&field.type_text)
}

impl Field {
    /// Returns whether records may have no value for the field. The field is a string of user space, which may be
    /// unreadable, or a number that may be unknown.
    pub fn may_be_absent(&self) -> bool {
        self.kind == FieldKind::NumberIfKnown || self.type_text == USER_TEXT
    }

    /// Returns whether the field has no value in a record. `bytes` is the part of the record with the field's string.
    #[inline]
    pub(super) fn is_absent(&self, bytes: &[u8]) -> bool {
        bytes.is_empty() && self.may_be_absent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPENAT: &str = "name: sys_enter_openat\nID: 700\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:int dfd;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:const char * filename;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:int flags;\toffset:32;\tsize:8;\tsigned:0;\n\n\
        print fmt: \"dfd: 0x%08lx, flags: 0x%08lx\", ((unsigned long)(REC->dfd)), ((unsigned long)(REC->flags))\n";

    fn openat() -> EventFormat {
        EventFormat::parse("syscalls", OPENAT).unwrap()
    }

    fn record(location: u32, cut: u8, text: &[u8]) -> Vec<u8> {
        [&[0; 40][..], &location.to_ne_bytes(), &[cut, 0, 0, 0], text].concat()
    }

    #[test]
    fn the_string_of_a_field_is_a_field_of_its_own() {
        let format = openat().with_strings(&["filename".to_owned()]).unwrap();
        assert_eq!(
            format.strings(),
            [StringPlace { address: StringAddress::Field(24), location: 40, cut: 44, argument: None }]
        );
        let raw = record(48 | 5 << 16, 0, b"/etc\0");
        assert_eq!(format.field("filename_str").unwrap().value(&raw), Some(crate::value::Value::Str(b"/etc")));
        assert_eq!(format.field("filename_cut").unwrap().value(&raw), Some(crate::value::Value::Bool(false)));
        let mut text = Vec::new();
        format.render(&raw, &crate::tracefs::NoKernel, &mut text);
        assert_eq!(String::from_utf8(text).unwrap(), "sys_openat(dfd: 0, filename: 0 \"/etc\", flags: 0)");
        assert!(format.print_fmt().is_ok(), "{}", format.print_fmt_text());
        assert!(format.print_fmt_text().ends_with("(REC->flags)), __get_str(filename_str)"), "{}", format.text());
        // A recording contains the text of the format, so parsing this text must give the same format.
        let again = EventFormat::parse("syscalls", format.text()).unwrap();
        assert_eq!((again.fields(), again.id), (format.fields(), 700));
    }

    #[test]
    fn a_string_that_could_not_be_read_is_absent_and_an_empty_one_is_not() {
        let format = openat().with_strings(&["filename".to_owned()]).unwrap();
        let field = format.field("filename_str").unwrap();
        assert_eq!(field.value(&record(48, 0, b"\0")), None);
        assert_eq!(field.value(&record(48 | 1 << 16, 0, b"\0")), Some(crate::value::Value::Str(b"")));
    }

    #[test]
    fn only_addresses_have_strings() {
        let error = |name: &str| openat().with_strings(&[name.to_owned()]).unwrap_err().to_string();
        assert_eq!(
            error("path"),
            "syscalls:sys_enter_openat has no field `path`; its fields that point to strings: filename"
        );
        assert_eq!(
            error("flags"),
            "the field `flags` of syscalls:sys_enter_openat does not point to a string; fields that do: filename"
        );
    }

    /// Linux 6.19 records the string itself.
    #[test]
    fn a_string_that_the_kernel_records_has_the_same_name_and_needs_no_program() {
        let own = "\tfield:int flags;\toffset:32;\tsize:8;\tsigned:0;\n\
            \tfield:__data_loc char[] __filename_val;\toffset:40;\tsize:4;\tsigned:0;\n";
        let text = OPENAT.replace("\tfield:int flags;\toffset:32;\tsize:8;\tsigned:0;\n", own);
        let format = EventFormat::parse("syscalls", &text).unwrap();
        assert_eq!(format.field("filename_str").unwrap().offset, 40);
        let mut text = Vec::new();
        let raw = [&[0; 24][..], &0x7000u64.to_ne_bytes(), &[0; 8], &(44u32 | 3 << 16).to_ne_bytes(), b"/a\0"].concat();
        format.render(&raw, &crate::tracefs::NoKernel, &mut text);
        assert_eq!(String::from_utf8(text).unwrap(), "sys_openat(dfd: 0, filename: 0x7000 \"/a\", flags: 0)");
        let asked = format.with_strings(&["filename".to_owned()]).unwrap();
        assert_eq!((asked.text(), asked.strings().len()), (format.text(), 0));
    }
}
