//! Print formats. A print format is parsed and compiled once. For each event, the compiled print format then produces
//! the text that the kernel prints.

mod ast;
mod compile;
pub(crate) mod ctype;
mod definitions;
mod expr;
mod functions;
mod lex;
mod number;
mod parse;
mod pointer;
mod render;
mod spec;
mod types;

use thiserror::Error;

use super::{Field, Kernel};
pub use definitions::{Defined, Definition};
use expr::{Context, Expr};
use pointer::Pointer;
pub use pointer::symbol_name;
use spec::Spec;

/// A compiled print format.
#[derive(Clone, Debug)]
pub struct PrintFmt {
    pieces: Box<[Piece]>,
    names: Box<[Box<str>]>,
}

#[derive(Clone, Debug)]
enum Piece {
    Literal(Box<[u8]>),
    Conversion(Box<Conversion>),
}

/// A conversion with its arguments.
#[derive(Clone, Debug)]
struct Conversion {
    spec: Spec,
    /// The argument that gives the width, if the width is `*`.
    width: Option<Expr>,
    /// The argument that gives the precision, if the precision is `*`.
    precision: Option<Expr>,
    value: Expr,
    /// The first field that the value uses.
    field: Option<Box<str>>,
}

/// Why a print format could not be compiled.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PrintFmtError {
    /// The print format does not begin with a string.
    #[error("the print format does not begin with a format string")]
    NoFormatString,
    /// A string has no closing quote.
    #[error("the string at {at} is not closed")]
    UnclosedString {
        /// The byte offset of the string's start.
        at: usize,
    },
    /// The grammar does not allow this text here.
    #[error("unexpected `{what}` at position {at}")]
    Unexpected {
        /// The unexpected text.
        what: String,
        /// The position of the unexpected text: the number of the token, or the byte offset if the text is not a token.
        at: usize,
    },
    /// The print format ends too early.
    #[error("the print format ends in the middle of an expression")]
    UnexpectedEnd,
    /// The expressions are nested too deep.
    #[error("the expressions of the print format are nested too deep")]
    TooDeep,
    /// The print format is too large after its local variables have been replaced by their values.
    #[error("the print format is too large after its local variables are replaced by their values")]
    TooLarge,
    /// The print format uses a field that the event does not have.
    #[error("the event has no field `{field}`")]
    UnknownField {
        /// The field's name.
        field: String,
    },
    /// The print format calls a kernel function that perf-prof does not implement.
    #[error("the print format calls the kernel function `{function}`, which perf-prof does not know")]
    UnknownFunction {
        /// The function's name.
        function: String,
    },
    /// The number or kind of a function's arguments is wrong.
    #[error("cannot parse the arguments of the function `{function}`")]
    WrongArguments {
        /// The function's name.
        function: String,
    },
    /// The kernel's printf has no such conversion.
    #[error("`{conversion}` is not a conversion of the kernel's printf")]
    UnknownConversion {
        /// The conversion, beginning with `%`.
        conversion: String,
    },
    /// The format string has more conversions than there are arguments.
    #[error("the print format has fewer arguments than conversions")]
    MissingArgument,
    /// An expression cannot be evaluated from an event's data.
    #[error("`{what}` cannot be evaluated")]
    Unsupported {
        /// The part of the expression that is not supported.
        what: String,
    },
}

impl PrintFmt {
    /// Compiles the text after `print fmt:` for an event with these fields.
    pub fn compile(text: &str, fields: &[Field]) -> Result<PrintFmt, PrintFmtError> {
        let tokens = lex::tokens(text)?;
        let (format, arguments) = parse::parse(&tokens)?;
        compile::compile(&format, &arguments, fields)
    }

    /// Returns the definitions in the text after `print fmt:`, which
    /// [`EventFormat::definitions`](super::EventFormat::definitions) describes.
    pub(super) fn definitions(text: &str, kernel: &dyn Kernel, field: &mut Option<String>) -> Vec<Definition> {
        let tokens = lex::tokens(text).unwrap_or_default();
        let Ok((_, arguments)) = parse::parse(&tokens) else { return Vec::new() };
        definitions::definitions(&arguments, kernel, field)
    }

    /// Appends the text of an event.
    pub fn show(&self, raw: &[u8], kernel: &dyn Kernel, out: &mut Vec<u8>) {
        self.render(Context { raw, kernel }, out);
    }

    /// Appends the text of the first conversion that shows `field` as something other than a plain number. If more
    /// conversions of `field` follow without text in between, appends their text too. For example, `sched_switch` shows
    /// its state as `%s%s`; the second `%s` is the `+` of a preempted task. Returns `false` if no conversion shows
    /// `field` in this way.
    pub(crate) fn show_field(&self, field: &str, raw: &[u8], kernel: &dyn Kernel, out: &mut Vec<u8>) -> bool {
        let shows = |c: &&Conversion| c.field.as_deref() == Some(field) && c.is_more_than_number();
        let conversions = self.pieces.iter().map(|piece| match piece {
            Piece::Literal(_) => None,
            Piece::Conversion(conversion) => Some(&**conversion).filter(shows),
        });
        let mut adjacent = conversions.skip_while(Option::is_none).map_while(|conversion| conversion).peekable();
        let is_shown = adjacent.peek().is_some();
        adjacent.for_each(|conversion| conversion.render(Context { raw, kernel }, out));
        is_shown
    }

    /// Returns the names of the kernel facts that the print format needs: enumerators and variables (`jiffies`),
    /// members (`kvm_mmu_page_role.level`), types whose size is used (`struct page`), and `HZ`. The rendered text is
    /// exact only if [`Kernel`] knows all these facts.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// Returns whether a conversion shows the bytes of `field` as an address or an identifier (MAC, IP, UUID).
    pub(crate) fn shows_as_binary(&self, field: &str) -> bool {
        self.shows_as(field, |pointer| pointer.dereferences())
    }

    /// Returns whether a conversion shows the bytes of `field` as an Internet address.
    pub(crate) fn shows_as_address(&self, field: &str) -> bool {
        self.shows_as(field, |pointer| matches!(pointer, Pointer::Ip4(_) | Pointer::Ip6(_)))
    }

    fn shows_as(&self, field: &str, is_wanted: impl Fn(Pointer) -> bool) -> bool {
        let is_shown = |c: &Conversion| matches!(c.spec.kind, spec::Kind::Pointer(of) if is_wanted(of));
        self.conversions().any(|conversion| conversion.field.as_deref() == Some(field) && is_shown(conversion))
    }

    fn conversions(&self) -> impl Iterator<Item = &Conversion> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Literal(_) => None,
            Piece::Conversion(conversion) => Some(&**conversion),
        })
    }
}
