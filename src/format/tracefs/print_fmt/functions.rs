//! The `__print_*` and `__get_*` functions that produce text. The rules are the same as in the kernel's
//! `kernel/trace/trace_output.c`. The functions do not know about printf.

use std::io::Write;

use super::{
    PrintFmtError,
    ast::Ast,
    compile::Compiler,
    ctype::IntType,
    expr::{Context, Expr},
    pointer::{self, BitmapStyle, Separator, bits},
    render::MAX_TEXT,
};
use crate::tracefs::Extent;

/// A call of a function, with its compiled arguments.
#[derive(Clone, Debug)]
pub(super) enum Function {
    Flags(Flags),
    Symbolic(Symbolic),
    Array(Array),
    Hex(Hex),
    HexDump(HexDump),
    Bitmask(Bitmask),
}

impl Function {
    /// Compiles a call. Returns `None` if `function` is not one of these functions.
    pub fn compile<'c, 't>(
        compiler: &mut Compiler<'c, 't>,
        function: &str,
        arguments: &'c [Ast<'t>],
    ) -> Result<Option<Function>, PrintFmtError> {
        let known = match (function, arguments) {
            ("__print_flags" | "__print_flags_u64", [value, delimiter, names @ ..]) => Function::Flags(Flags {
                value: compiler.value(value)?,
                delimiter: compiler.value(delimiter)?,
                names: Names::compile(compiler, function, names)?,
            }),
            ("__print_symbolic" | "__print_symbolic_u64", [value, names @ ..]) => {
                let (value, names) = (compiler.value(value)?, Names::compile(compiler, function, names)?);
                Function::Symbolic(Symbolic { value, names })
            }
            ("__print_array", [array, count, size]) => Function::Array(Array {
                array: compiler.value(array)?,
                count: Some(compiler.value(count)?),
                size: compiler.value(size)?,
            }),
            ("__print_dynamic_array", [name, size]) => {
                let array = Expr::Data(compiler.extent(name)?.0);
                Function::Array(Array { array, count: None, size: compiler.value(size)? })
            }
            ("__print_hex" | "__print_hex_str", [array, len]) => Function::Hex(Hex {
                array: compiler.value(array)?,
                len: compiler.value(len)?,
                together: function == "__print_hex_str",
            }),
            ("__print_hex_dump", [prefix, kind, row, group, array, len, ascii]) => Function::HexDump(HexDump {
                prefix: compiler.value(prefix)?,
                kind: compiler.value(kind)?,
                row: compiler.value(row)?,
                group: compiler.value(group)?,
                array: compiler.value(array)?,
                len: compiler.value(len)?,
                ascii: compiler.value(ascii)?,
            }),
            ("__get_bitmask" | "__get_rel_bitmask" | "__get_cpumask" | "__get_rel_cpumask", [name]) => {
                Function::Bitmask(Bitmask { extent: compiler.extent(name)?.0 })
            }
            (name, _) if name.starts_with("__print_") && !name.starts_with("__print_ns_") => {
                return Err(PrintFmtError::WrongArguments { function: function.to_owned() });
            }
            _ => return Ok(None),
        };
        Ok(Some(known))
    }

    /// Appends the text. Returns `None` if the text is not known.
    pub fn show(&self, cx: Context<'_>, out: &mut Vec<u8>) -> Option<()> {
        match self {
            Function::Flags(flags) => flags.show(cx, out),
            Function::Symbolic(symbolic) => symbolic.show(cx, out),
            Function::Array(array) => array.show(cx, out),
            Function::Hex(hex) => hex.show(cx, out),
            Function::HexDump(dump) => dump.show(cx, out),
            Function::Bitmask(bitmask) => bitmask.show(cx, out),
        }
    }
}

/// The pairs of value and name that follow the first arguments of `__print_flags` and `__print_symbolic`.
#[derive(Clone, Debug)]
pub(super) struct Names(Box<[(Expr, Expr)]>);

impl Names {
    fn compile<'c, 't>(
        compiler: &mut Compiler<'c, 't>,
        function: &str,
        list: &'c [Ast<'t>],
    ) -> Result<Names, PrintFmtError> {
        let mut names = Vec::with_capacity(list.len());
        for pair in list {
            let (value, name) = match pair {
                Ast::List(pair) => match &pair[..] {
                    [value, name] => (value, name),
                    // In `{ }`, the name is missing and counts as a null pointer.
                    [] => break,
                    _ => return Err(PrintFmtError::WrongArguments { function: function.to_owned() }),
                },
                _ => return Err(PrintFmtError::WrongArguments { function: function.to_owned() }),
            };
            let (value, name) = (compiler.value(value)?, compiler.value(name)?);
            // The kernel's loop ends at a name that is a null pointer.
            if matches!(name, Expr::Int(0)) {
                break;
            }
            names.push((value, name));
        }
        Ok(Names(names.into()))
    }
}

/// `__print_flags`: the names of the bits that are set, as `trace_print_flags_seq` prints them.
#[derive(Clone, Debug)]
pub(super) struct Flags {
    pub value: Expr,
    pub delimiter: Expr,
    pub names: Names,
}

impl Flags {
    pub fn show(&self, cx: Context<'_>, out: &mut Vec<u8>) -> Option<()> {
        let mut left = self.value.int(cx)?;
        let mut first = true;
        let mut delimit = |out: &mut Vec<u8>| {
            if !std::mem::take(&mut first) && !matches!(self.delimiter, Expr::Int(0)) {
                self.delimiter.text(cx, out)?;
            }
            Some(())
        };
        for (mask, name) in &self.names.0 {
            if left == 0 {
                break;
            }
            // If the value of a mask is not known, the mask could contain any bit. So the whole text is not known.
            let mask = mask.int(cx)?;
            if left & mask == mask {
                left &= !mask;
                delimit(out)?;
                name.text(cx, out)?;
            }
        }
        if left != 0 {
            delimit(out)?;
            // Writing to a Vec cannot fail.
            let _ = write!(out, "{left:#x}");
        }
        Some(())
    }
}

/// `__print_symbolic`: the name of a value, as `trace_print_symbols_seq` prints it.
#[derive(Clone, Debug)]
pub(super) struct Symbolic {
    pub value: Expr,
    pub names: Names,
}

impl Symbolic {
    pub fn show(&self, cx: Context<'_>, out: &mut Vec<u8>) -> Option<()> {
        let value = self.value.int(cx)?;
        let start = out.len();
        for (candidate, name) in &self.names.0 {
            if candidate.int(cx)? == value {
                name.text(cx, out)?;
                break;
            }
        }
        // The kernel prints the number if no name matches, and also if the matching name is empty.
        if out.len() == start {
            // Writing to a Vec cannot fail.
            let _ = write!(out, "{value:#x}");
        }
        Some(())
    }
}

/// `__print_array` and `__print_dynamic_array`: integers like `{0x1,0x2}`, as `trace_print_array_seq` prints them.
#[derive(Clone, Debug)]
pub(super) struct Array {
    pub array: Expr,
    /// The number of elements. `None` stands for all elements.
    pub count: Option<Expr>,
    pub size: Expr,
}

impl Array {
    pub fn show(&self, cx: Context<'_>, out: &mut Vec<u8>) -> Option<()> {
        let bytes = self.array.bytes(cx)?;
        let size = usize::try_from(self.size.int(cx)?).ok()?;
        let count = match &self.count {
            Some(count) => usize::try_from(IntType::INT.wrap(count.int(cx)?) as i64).unwrap_or(0),
            None => bytes.len().checked_div(size)?,
        };
        out.push(b'{');
        let stride = if matches!(size, 1 | 2 | 4 | 8) { size } else { 1 };
        for (i, element) in bytes.chunks_exact(stride).take(count).enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let value = IntType::new(stride as u8, false).load(element, 0)?;
            // Writing to a Vec cannot fail.
            let _ = if stride == size {
                write!(out, "{comma}{value:#x}")
            } else {
                write!(out, "{comma}BAD SIZE:{size} {value:#x}")
            };
        }
        out.push(b'}');
        Some(())
    }
}

/// `__print_hex` and `__print_hex_str`: bytes in hexadecimal, as `trace_print_hex_seq` prints them.
#[derive(Clone, Debug)]
pub(super) struct Hex {
    pub array: Expr,
    pub len: Expr,
    /// True if there are no spaces between the bytes.
    pub together: bool,
}

impl Hex {
    pub fn show(&self, cx: Context<'_>, out: &mut Vec<u8>) -> Option<()> {
        let bytes = self.array.bytes(cx)?;
        let len = usize::try_from(IntType::INT.wrap(self.len.int(cx)?) as i64).unwrap_or(0).min(bytes.len());
        pointer::hex(&bytes[..len], if self.together { Separator::None } else { Separator::Space }, out);
        Some(())
    }
}

/// The values of the prefix: `DUMP_PREFIX_NONE` and `DUMP_PREFIX_OFFSET` of `include/linux/printk.h`. The value 1,
/// `DUMP_PREFIX_ADDRESS`, has no constant here.
const PREFIX_NONE: u64 = 0;
const PREFIX_OFFSET: u64 = 2;

/// `__print_hex_dump`: rows of bytes in hexadecimal, as `trace_print_hex_dump_seq` and `hex_dump_to_buffer` print them.
#[derive(Clone, Debug)]
pub(super) struct HexDump {
    pub prefix: Expr,
    pub kind: Expr,
    pub row: Expr,
    pub group: Expr,
    pub array: Expr,
    pub len: Expr,
    pub ascii: Expr,
}

impl HexDump {
    pub fn show(&self, cx: Context<'_>, out: &mut Vec<u8>) -> Option<()> {
        let bytes = self.array.bytes(cx)?;
        let len = usize::try_from(self.len.int(cx)?).ok()?.min(bytes.len());
        let row = if self.row.int(cx)? == 32 { 32 } else { 16 };
        let group = self.group.int(cx)? as usize;
        let (kind, ascii) = (self.kind.int(cx)?, self.ascii.int(cx)? != 0);
        let start = out.len();
        out.push(b'\n');
        for (i, bytes) in bytes[..len].chunks(row).enumerate() {
            if out.len() - start > MAX_TEXT {
                break;
            }
            self.prefix.text(cx, out)?;
            // Writing to a Vec cannot fail.
            match kind {
                PREFIX_NONE => {}
                PREFIX_OFFSET => {
                    let _ = write!(out, "{:08x}: ", i * row);
                }
                // The kernel would print the address of its own copy of the bytes, which is not known.
                _ => out.extend(b"?: "),
            }
            let column = out.len();
            let group = if matches!(group, 2 | 4 | 8) && bytes.len().is_multiple_of(group) { group } else { 1 };
            for (i, unit) in bytes.chunks(group).enumerate() {
                let space = if i > 0 { " " } else { "" };
                let ty = IntType::new(unit.len() as u8, false);
                let value = ty.load(unit, 0)?;
                let _ = write!(out, "{space}{value:0width$x}", width = unit.len() * 2);
            }
            if ascii {
                let text = column + row * 2 + row / group + 1;
                out.resize(out.len().max(text), b' ');
                out.extend(bytes.iter().map(|&b| if b.is_ascii_graphic() || b == b' ' { b } else { b'.' }));
            }
            out.push(b'\n');
        }
        Some(())
    }
}

/// `__get_bitmask` and `__get_cpumask`: a bitmap in hexadecimal, as `trace_print_bitmask_seq` prints it.
#[derive(Clone, Debug)]
pub(super) struct Bitmask {
    pub extent: Extent,
}

impl Bitmask {
    pub fn show(&self, cx: Context<'_>, out: &mut Vec<u8>) -> Option<()> {
        let bytes = self.extent.bytes(cx.raw)?;
        bits(bytes, bytes.len() * 8, BitmapStyle::Hex, out)
    }
}
