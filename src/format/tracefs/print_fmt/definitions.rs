//! The names of flags and of values in a print format, in the order in which `perf script` defines them for a script.
//! Like perf, this module finds the names in the syntax tree. It evaluates only constant expressions.

use super::{
    ast::{Ast, UnaryOp},
    compile,
    expr::Context,
    types::Type,
};
use crate::{tracefs::Kernel, value::Value};

/// A definition for a field, which a script of `perf script` gets before its events.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// The name of the field.
    pub field: String,
    /// The definition.
    pub defined: Defined,
}

/// The definition of a flag or a value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Defined {
    /// The field has flags.
    Flags {
        /// The text between the names of two flags.
        delimiter: Box<[u8]>,
    },
    /// A flag of the field has a name.
    Flag {
        /// The bits of the flag.
        value: Value<'static>,
        /// The name of the flag.
        name: Box<[u8]>,
    },
    /// The values of the field have names.
    Symbols,
    /// A value of the field has a name.
    Symbol {
        /// The value.
        value: Value<'static>,
        /// The name of the value.
        name: Box<[u8]>,
    },
}

/// An error: the argument has a form that libtraceevent, the parser of perf, does not know. perf ignores such an
/// argument and all arguments after it.
struct Unknown;

/// Returns the definitions in the arguments of a print format. `field` is the name of the last field that was seen.
pub(super) fn definitions(arguments: &[Ast<'_>], kernel: &dyn Kernel, field: &mut Option<String>) -> Vec<Definition> {
    let mut finder = Finder { kernel, field: field.clone(), found: Vec::new() };
    for argument in arguments {
        let complete = finder.found.len();
        if finder.find(argument).is_err() {
            finder.found.truncate(complete);
            break;
        }
        field.clone_from(&finder.field);
    }
    finder.found
}

struct Finder<'k> {
    kernel: &'k dyn Kernel,
    /// The name of the last field that was seen.
    field: Option<String>,
    found: Vec<Definition>,
}

impl Finder<'_> {
    fn find(&mut self, ast: &Ast<'_>) -> Result<(), Unknown> {
        match ast {
            Ast::Int(number) => self.word(number.text.as_bytes()),
            Ast::Text(text) => self.word(text),
            Ast::Name(name) => self.word(name.as_bytes()),
            Ast::Member(base, name) if matches!(**base, Ast::Name("REC")) => self.field = Some((*name).to_owned()),
            // libtraceevent treats a unary operator after a cast as a binary operator, with the type as its first
            // operand.
            Ast::Cast(ty, value) if matches!(**value, Ast::Unary(..)) => {
                self.word(ty.text().as_bytes());
                self.find(value)?;
            }
            Ast::Unary(UnaryOp::Address | UnaryOp::Deref, _) => return Err(Unknown),
            Ast::Cast(_, value) | Ast::Unary(_, value) => self.find(value)?,
            // libtraceevent parses `__get_dynamic_array(field)[index]` as one call, and searches nothing in it.
            Ast::Index(parts)
                if matches!(parts[0], Ast::Call("__get_dynamic_array" | "__get_rel_dynamic_array", _)) => {}
            Ast::Binary(_, parts) | Ast::And(parts) | Ast::Or(parts) | Ast::Index(parts) => self.find_all(&**parts)?,
            Ast::Cond(parts) => self.find_all(&**parts)?,
            Ast::Call(function, arguments) => self.call(function, arguments)?,
            Ast::Member(..) | Ast::SizeOfType(_) | Ast::SizeOf(_) | Ast::List(_) | Ast::Block(_) => {
                return Err(Unknown);
            }
        }
        Ok(())
    }

    fn find_all(&mut self, parts: &[Ast<'_>]) -> Result<(), Unknown> {
        parts.iter().try_for_each(|part| self.find(part))
    }

    fn call(&mut self, function: &str, arguments: &[Ast<'_>]) -> Result<(), Unknown> {
        match (function, arguments) {
            ("__print_flags", [value, Ast::Text(delimiter), names @ ..]) => {
                self.find(value)?;
                self.define(Defined::Flags { delimiter: delimiter.clone() });
                self.list(names, |value, name| Defined::Flag { value, name })
            }
            ("__print_symbolic", [value, names @ ..]) => {
                self.find(value)?;
                self.define(Defined::Symbols);
                self.list(names, |value, name| Defined::Symbol { value, name })
            }
            ("__print_hex" | "__print_hex_str" | "__print_array", arguments) => self.find_all(arguments),
            ("__builtin_expect", [value, _]) => self.find(value),
            (
                "__get_str"
                | "__get_rel_str"
                | "__get_bitmask"
                | "__get_rel_bitmask"
                | "__get_dynamic_array"
                | "__get_rel_dynamic_array"
                | "__get_dynamic_array_len"
                | "__get_rel_dynamic_array_len",
                _,
            ) => Ok(()),
            _ => Err(Unknown),
        }
    }

    fn list(
        &mut self,
        names: &[Ast<'_>],
        define: impl Fn(Value<'static>, Box<[u8]>) -> Defined,
    ) -> Result<(), Unknown> {
        for pair in names {
            let Ast::List(pair) = pair else { return Err(Unknown) };
            let [value, name] = &pair[..] else { return Err(Unknown) };
            // perf gives 0 for all constants that have a name, and for negative numbers.
            let value = self.value(value).unwrap_or(Value::Uint(0));
            self.define(define(value, word(name)?.into()));
        }
        Ok(())
    }

    /// Returns the value of a constant expression, if it is known.
    fn value(&self, ast: &Ast<'_>) -> Option<Value<'static>> {
        let (expr, ty) = compile::constant(ast).ok()?;
        let value = expr.int(Context { raw: &[], kernel: self.kernel })?;
        Some(match ty {
            Type::Int(ty) if ty.signed => Value::Int(value as i64),
            _ => Value::Uint(value),
        })
    }

    /// Defines a number, a name or a text outside of a list as a flag with the value 0.
    fn word(&mut self, text: &[u8]) {
        self.define(Defined::Flag { value: Value::Uint(0), name: text.into() });
    }

    fn define(&mut self, defined: Defined) {
        if let Some(field) = &self.field {
            self.found.push(Definition { field: field.clone(), defined });
        }
    }
}

/// Returns the text of a number, a name or a text. In a list, the name of the last pair is often a null pointer, `(void
/// *)0`, whose text is `0`.
fn word<'a>(ast: &'a Ast<'_>) -> Result<&'a [u8], Unknown> {
    match ast {
        Ast::Int(number) => Ok(number.text.as_bytes()),
        Ast::Text(text) => Ok(text),
        Ast::Name(name) => Ok(name.as_bytes()),
        Ast::Cast(_, value) => word(value),
        _ => Err(Unknown),
    }
}
