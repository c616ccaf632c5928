//! Parser for the text of a `format` file: the event's name, id, fields and print format.

use std::sync::{Arc, OnceLock};

use thiserror::Error;

use super::{
    ElementType, Field, FieldKind, Kernel, NUMBER_IF_KNOWN, interpreter_frames,
    kernel_text::TextSource,
    print_fmt::{Definition, PrintFmt, PrintFmtError, ctype::IntType},
};
use crate::value::{Value, words};

/// The format of an event, as described by a `format` file of tracefs.
#[derive(Clone, Debug)]
pub struct EventFormat {
    /// The event's system, for example `sched`. This is the name of a folder in the `events` folder of tracefs.
    pub system: Arc<str>,
    /// The event's name, for example `sched_switch`.
    pub name: String,
    /// The event's id: the value of `common_type` in its records.
    pub id: u32,
    text: Box<str>,
    fields: Box<[Field]>,
    /// The number of common fields, which come first in `fields`.
    common: usize,
    /// The index in `fields` after the event's own fields. The hidden field for interpreter frames may be at this
    /// index.
    own_end: usize,
    writer: TextSource,
    print_fmt: OnceLock<Result<PrintFmt, PrintFmtError>>,
}

/// Why the text of a format could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// A line is missing.
    #[error("the event's format has no `{line}` line")]
    Missing {
        /// The start of the missing line.
        line: &'static str,
    },
    /// A line cannot be parsed.
    #[error("cannot parse this line of the event's format: `{line}`")]
    Line {
        /// The line.
        line: String,
    },
}

pub(super) const PRINT_FMT: &str = "\nprint fmt:";

impl EventFormat {
    /// Parses the text of a `format` file. `system` is the event's system.
    pub fn parse(system: &str, text: &str) -> Result<EventFormat, FormatError> {
        Self::parse_of(&system.into(), text)
    }

    /// Like [`EventFormat::parse`], for several formats of one system. The formats share the memory of the system's
    /// name.
    pub fn parse_of(system: &Arc<str>, text: &str) -> Result<EventFormat, FormatError> {
        // The print format comes last and may contain line breaks.
        let (head, _) = text.split_once(PRINT_FMT).ok_or(FormatError::Missing { line: "print fmt:" })?;
        let (mut name, mut id, mut fields) = (None, None, Vec::new());
        for line in head.lines() {
            let line = line.trim();
            let wrong = || FormatError::Line { line: line.to_owned() };
            if let Some(rest) = line.strip_prefix("name:") {
                name = Some(rest.trim().to_owned());
            } else if let Some(rest) = line.strip_prefix("ID:") {
                id = Some(rest.trim().parse().map_err(|_| wrong())?);
            } else if line.starts_with("field:") {
                fields.push(field(system, line).ok_or_else(wrong)?);
            }
        }
        let name = name.ok_or(FormatError::Missing { line: "name:" })?;
        let writer = TextSource::for_event(system, &name, &fields);
        let mut format = EventFormat {
            system: Arc::clone(system),
            name,
            id: id.ok_or(FormatError::Missing { line: "ID:" })?,
            text: text.into(),
            common: fields.iter().take_while(|field| field.name.starts_with("common_")).count(),
            own_end: fields.iter().take_while(|field| field.name != interpreter_frames::FIELD).count(),
            fields: fields.into(),
            writer,
            print_fmt: OnceLock::new(),
        };
        format.mark_binary();
        Ok(format)
    }

    /// Turns text fields into fields of bytes if the print format shows them as an address or an identifier (`%pM`,
    /// `%pU`).
    fn mark_binary(&mut self) {
        let text = |field: &Field| field.kind.is_text();
        // Most print formats have no such conversion. These print formats are not compiled here.
        if !self.fields.iter().any(text) || !has_dereference(self.print_fmt_text()) {
            return;
        }
        let Ok(print_fmt) = self.print_fmt() else { return };
        let shown = |field: &Field| text(field) && print_fmt.shows_as_binary(&field.name);
        let binary: Vec<bool> = self.fields.iter().map(shown).collect();
        let byte = ElementType::Int { width: 1, signed: false };
        for (field, _) in self.fields.iter_mut().zip(binary).filter(|(_, binary)| *binary) {
            field.kind = field.kind.with_element(byte);
        }
    }

    /// Returns whether the print format shows the bytes of a field as an Internet address.
    pub fn shows_as_address(&self, name: &str) -> bool {
        has_dereference(self.print_fmt_text())
            && self.print_fmt().is_ok_and(|print_fmt| print_fmt.shows_as_address(name))
    }

    /// Turns arrays of integers into arrays of words, for the format of a span. The value of an array of words is a
    /// list of numbers, whereas the value of an array of integers is bytes.
    pub fn with_words(mut self) -> EventFormat {
        let is_array = |field: &&mut Field| matches!(field.kind.element(), Some(ElementType::Int { .. }));
        for field in self.fields.iter_mut().filter(is_array) {
            field.kind = field.kind.with_element(ElementType::Word);
        }
        self
    }

    /// Returns the text that this format was parsed from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the fields that all events have: `common_type`, `common_flags`, `common_preempt_count`, `common_pid`.
    pub fn common_fields(&self) -> &[Field] {
        &self.fields[..self.common]
    }

    /// Returns the event's own fields, in the order of the format.
    pub fn fields(&self) -> &[Field] {
        &self.fields[self.common.min(self.own_end)..self.own_end]
    }

    /// Returns the size in bytes of the raw data without arrays of variable size. Each record is at least this large.
    pub fn size(&self) -> usize {
        self.fields.iter().map(|field| field.offset.saturating_add(field.size)).max().unwrap_or(0)
    }

    /// Returns the field with this name. It can be a common field or one of the event's own fields.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name).or_else(|| self.recorded_string(name))
    }

    /// Returns the text after `print fmt:`.
    pub fn print_fmt_text(&self) -> &str {
        self.text.split_once(PRINT_FMT).map_or("", |(_, print_fmt)| print_fmt.trim())
    }

    /// Returns the compiled print format. The first call compiles it.
    pub fn print_fmt(&self) -> Result<&PrintFmt, &PrintFmtError> {
        self.print_fmt.get_or_init(|| PrintFmt::compile(self.print_fmt_text(), &self.fields)).as_ref()
    }

    /// Returns the names of flags and of values that the print format defines, as `perf script` passes them to a
    /// script. Like perf, treats each number and each name outside of a list as a flag of the last field that was seen.
    /// `field` is the name of the last field. Callers pass the same variable for all events, because perf keeps the
    /// last field from one event to the next.
    pub fn definitions(&self, kernel: &dyn Kernel, field: &mut Option<String>) -> Vec<Definition> {
        PrintFmt::definitions(self.print_fmt_text(), kernel, field)
    }

    /// Appends the text that the kernel prints for the event, without the event's name and without a line end. Appends
    /// the names and values of the fields if the print format could not be compiled.
    pub fn render(&self, raw: &[u8], kernel: &dyn Kernel, out: &mut Vec<u8>) {
        if !self.writer.write(self, raw, kernel, out) {
            self.render_print_fmt(raw, kernel, out);
        }
    }

    /// Appends the text that the event's print format gives, even if the kernel itself prints another text for the
    /// event. Programs that know only the `format` file show this text.
    pub fn render_print_fmt(&self, raw: &[u8], kernel: &dyn Kernel, out: &mut Vec<u8>) {
        match self.print_fmt() {
            Ok(print_fmt) => print_fmt.show(raw, kernel, out),
            Err(_) => self.render_fields(raw, out),
        }
    }

    fn render_fields(&self, raw: &[u8], out: &mut Vec<u8>) {
        for (i, field) in self.fields().iter().enumerate() {
            out.extend(if i > 0 { b" ".as_slice() } else { b"" });
            out.extend(field.name.as_bytes());
            out.push(b'=');
            plain(field, raw, out);
        }
    }

    /// Appends one field as the print format shows it, for example the names of flags or the symbol of an address. If
    /// the print format shows the field as a number, appends the plain value. Returns `false` if the event has no field
    /// `name`, or if the raw data ends before the field.
    pub fn render_field(&self, name: &str, raw: &[u8], kernel: &dyn Kernel, out: &mut Vec<u8>) -> bool {
        let Some(field) = self.field(name) else { return false };
        if field.value(raw).is_none() {
            return false;
        }
        let shown = self.print_fmt().is_ok_and(|print_fmt| print_fmt.show_field(name, raw, kernel, out));
        if !shown {
            plain(field, raw, out);
        }
        true
    }
}

/// Returns false if a print format certainly has no `%p` conversion that reads the memory at the address. Returns true
/// if it may have one.
fn has_dereference(print_fmt: &str) -> bool {
    print_fmt.match_indices('p').any(|(at, _)| {
        let (before, after) = (&print_fmt.as_bytes()[..at], &print_fmt.as_bytes()[at + 1..]);
        matches!(after.first(), Some(b'I' | b'i' | b'M' | b'm' | b'U' | b'h' | b'b'))
            && matches!(before.last(), Some(b'%' | b'*' | b'0'..=b'9' | b'-'))
    })
}

fn plain(field: &Field, raw: &[u8], out: &mut Vec<u8>) {
    use std::io::Write;
    // Writing to a Vec cannot fail.
    let _ = match field.value(raw) {
        None => write!(out, "?"),
        Some(Value::Bool(value)) => write!(out, "{}", u8::from(value)),
        Some(Value::Int(value)) => write!(out, "{value}"),
        Some(Value::Uint(value)) if field.kind.is_address() => write!(out, "{value:#x}"),
        Some(Value::Uint(value)) => write!(out, "{value}"),
        Some(Value::Str(text)) => out.write_all(text),
        Some(Value::Bytes(bytes)) => bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}")),
        Some(Value::Words(bytes)) => write!(out, "{:?}", words(bytes).collect::<Vec<_>>()),
    };
}

/// Parses a field from a line like `field:unsigned long args[6]; offset:16; size:48; signed:0;`.
fn field(system: &str, line: &str) -> Option<Field> {
    let mut parts = line.split(';');
    let declaration = parts.next()?.strip_prefix("field:")?.trim();
    let (mut offset, mut size, mut signed) = (None, None, false);
    for part in parts {
        match part.trim().split_once(':') {
            Some(("offset", value)) => offset = value.trim().parse().ok(),
            Some(("size", value)) => size = value.trim().parse().ok(),
            Some(("signed", value)) => signed = value.trim() == "1",
            _ => {}
        }
    }
    // An offset in a record fits in 16 bits. Larger numbers are rejected, so that sums of two offsets or sizes cannot
    // overflow.
    let (offset, size) = (offset.filter(|&o: &usize| o <= 0xffff)?, size.filter(|&s: &usize| s <= 0xffff)?);
    let (type_text, name, length) = declarator(declaration)?;
    let kind = kind(system, type_text, length, size, signed);
    Some(Field { name: name.to_owned(), type_text: type_text.to_owned(), offset, size, signed, kind })
}

/// Splits a declaration into its type, its name, and the text in the brackets after the name.
fn declarator(declaration: &str) -> Option<(&str, &str, Option<&str>)> {
    let (rest, length) = match declaration.strip_suffix(']') {
        Some(rest) => {
            let (rest, length) = rest.rsplit_once('[')?;
            (rest.trim_end(), Some(length.trim()))
        }
        None => (declaration, None),
    };
    // In a pointer to a function the name is inside the type: `void (*func)(int)`.
    if let Some(at) = rest.find("(*") {
        let name = rest[at + 2..].split(')').next()?.trim();
        return Some((rest, name, length)).filter(|_| !name.is_empty());
    }
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '$' || c == '.';
    let at = rest.trim_end_matches(is_name).len();
    let name = &rest[at..];
    Some((rest[..at].trim_end(), name, length)).filter(|_| !name.is_empty())
}

fn kind(system: &str, type_text: &str, length: Option<&str>, size: usize, signed: bool) -> FieldKind {
    let loc = |rest: &str| match rest.trim().strip_suffix("[]") {
        Some(element) => element_type(element.trim(), None),
        None => element_type(rest.trim(), None),
    };
    if let Some(rest) = type_text.strip_prefix("__data_loc") {
        return FieldKind::DataLoc(loc(rest));
    }
    if let Some(rest) = type_text.strip_prefix("__rel_loc") {
        return FieldKind::RelLoc(loc(rest));
    }
    if let Some(length) = length {
        let width = length
            .parse()
            .ok()
            .filter(|&count: &usize| count > 0 && size.is_multiple_of(count))
            .map(|count| size / count);
        return FieldKind::Array(match (element_type(type_text, width), width) {
            (ElementType::Opaque, Some(width @ (1 | 2 | 4 | 8))) => ElementType::Int { width: width as u8, signed },
            (element, _) => element,
        });
    }
    if !matches!(size, 1 | 2 | 4 | 8) {
        return FieldKind::Array(ElementType::Opaque);
    }
    if type_text.ends_with('*') || type_text.contains("(*") || type_text.ends_with("*const") {
        return FieldKind::Pointer;
    }
    if matches!(type_text, "bool" | "_Bool") && size == 1 {
        return FieldKind::Bool;
    }
    if type_text == NUMBER_IF_KNOWN && size == 8 {
        return FieldKind::NumberIfKnown;
    }
    // In the events of system calls, each argument takes as many bytes as a register: `int dfd` has size 8. The format
    // says that all arguments are unsigned. Only the low bytes contain the caller's value, as many bytes as the C type
    // has.
    if system == "syscalls"
        && let Some(ty) = IntType::named(type_text)
        && ty.width as usize <= size
        && !type_text.starts_with("enum")
    {
        return FieldKind::Int { width: ty.width, signed: ty.signed };
    }
    FieldKind::Int { width: size as u8, signed }
}

fn element_type(text: &str, width: Option<usize>) -> ElementType {
    match (text, IntType::named(text)) {
        ("char" | "const char" | "char __user", _) => ElementType::Char,
        (_, Some(ty)) if width.is_none_or(|width| width == ty.width as usize) => {
            ElementType::Int { width: ty.width, signed: ty.signed }
        }
        _ if text.ends_with('*') && width.is_none_or(|width| width == 8) => {
            ElementType::Int { width: 8, signed: false }
        }
        _ => ElementType::Opaque,
    }
}
