//! The `__print_*` and `__get_*` functions that produce text. There is one file for each function. The rules are the
//! same as in the kernel's `kernel/trace/trace_output.c`. The functions do not know about printf.

mod array;
mod bitmask;
mod flags;
mod hex;
mod hex_dump;
mod symbolic;

use super::{
    PrintFmtError,
    ast::Ast,
    compile::Compiler,
    expr::{Context, Expr},
};

/// A call of a function, with its compiled arguments.
#[derive(Clone, Debug)]
pub(super) enum Function {
    Flags(flags::Flags),
    Symbolic(symbolic::Symbolic),
    Array(array::Array),
    Hex(hex::Hex),
    HexDump(hex_dump::HexDump),
    Bitmask(bitmask::Bitmask),
}

impl Function {
    /// Compiles a call. Returns `None` if `function` is not one of the functions in this folder.
    pub fn compile<'c, 't>(
        compiler: &mut Compiler<'c, 't>,
        function: &str,
        arguments: &'c [Ast<'t>],
    ) -> Result<Option<Function>, PrintFmtError> {
        let known = match (function, arguments) {
            ("__print_flags" | "__print_flags_u64", [value, delimiter, names @ ..]) => Function::Flags(flags::Flags {
                value: compiler.value(value)?,
                delimiter: compiler.value(delimiter)?,
                names: Names::compile(compiler, function, names)?,
            }),
            ("__print_symbolic" | "__print_symbolic_u64", [value, names @ ..]) => {
                let (value, names) = (compiler.value(value)?, Names::compile(compiler, function, names)?);
                Function::Symbolic(symbolic::Symbolic { value, names })
            }
            ("__print_array", [array, count, size]) => Function::Array(array::Array {
                array: compiler.value(array)?,
                count: Some(compiler.value(count)?),
                size: compiler.value(size)?,
            }),
            ("__print_dynamic_array", [name, size]) => {
                let array = Expr::Data(compiler.extent(name)?.0);
                Function::Array(array::Array { array, count: None, size: compiler.value(size)? })
            }
            ("__print_hex" | "__print_hex_str", [array, len]) => Function::Hex(hex::Hex {
                array: compiler.value(array)?,
                len: compiler.value(len)?,
                together: function == "__print_hex_str",
            }),
            ("__print_hex_dump", [prefix, kind, row, group, array, len, ascii]) => {
                Function::HexDump(hex_dump::HexDump {
                    prefix: compiler.value(prefix)?,
                    kind: compiler.value(kind)?,
                    row: compiler.value(row)?,
                    group: compiler.value(group)?,
                    array: compiler.value(array)?,
                    len: compiler.value(len)?,
                    ascii: compiler.value(ascii)?,
                })
            }
            ("__get_bitmask" | "__get_rel_bitmask" | "__get_cpumask" | "__get_rel_cpumask", [name]) => {
                Function::Bitmask(bitmask::Bitmask { extent: compiler.extent(name)?.0 })
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
                    // In `{ }` the name is a null pointer.
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
