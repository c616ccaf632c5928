//! A print format: parsed once, compiled once, rendered per event to the text that the kernel prints. Knows nothing of
//! where events come from.

mod ast;
mod compile;
pub(crate) mod ctype;
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
use expr::{Context, Expr};
use spec::Spec;

/// A print format, compiled.
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
    /// The argument of a `*` as width.
    width: Option<Expr>,
    /// The argument of a `*` as precision.
    precision: Option<Expr>,
    value: Expr,
    /// The field that the value is made of first.
    field: Option<Box<str>>,
}

/// Why a print format was not understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PrintFmtError {
    /// It does not begin with a string.
    #[error("it does not begin with a format string")]
    NoFormatString,
    /// A string has no end.
    #[error("the string at {at} is not closed")]
    UnclosedString {
        /// Offset of its start.
        at: usize,
    },
    /// Something stands where it cannot.
    #[error("`{what}` is not expected at {at}")]
    Unexpected {
        /// What it is.
        what: String,
        /// Which token or byte.
        at: usize,
    },
    /// It ends too early.
    #[error("it ends in the middle of an expression")]
    UnexpectedEnd,
    /// Its expressions are nested too deep.
    #[error("its expressions are nested too deep")]
    TooDeep,
    /// It is too large when its local variables are put in.
    #[error("it is too large")]
    TooLarge,
    /// It refers to a field that the event does not have.
    #[error("the event has no field `{field}`")]
    UnknownField {
        /// Its name.
        field: String,
    },
    /// It calls a function of the kernel that is not known here.
    #[error("`{function}` is not known")]
    UnknownFunction {
        /// Its name.
        function: String,
    },
    /// A function has arguments that make no sense.
    #[error("the arguments of `{function}` are not understood")]
    WrongArguments {
        /// Its name.
        function: String,
    },
    /// A conversion is none of the kernel's.
    #[error("`{conversion}` is no conversion of the kernel's printf")]
    UnknownConversion {
        /// The conversion.
        conversion: String,
    },
    /// The format string has more conversions than there are arguments.
    #[error("it has fewer arguments than conversions")]
    MissingArgument,
    /// An expression uses what no event has.
    #[error("`{what}` cannot be evaluated")]
    Unsupported {
        /// What it is.
        what: String,
    },
}

impl PrintFmt {
    /// Compiles the text behind `print fmt:` for an event of these fields.
    pub fn compile(text: &str, fields: &[Field]) -> Result<PrintFmt, PrintFmtError> {
        let tokens = lex::tokens(text)?;
        let (format, arguments) = parse::parse(&tokens)?;
        compile::compile(&format, &arguments, fields)
    }

    /// Appends the text of an event.
    pub fn show(&self, raw: &[u8], kernel: &dyn Kernel, out: &mut Vec<u8>) {
        self.render(Context { raw, kernel }, out);
    }

    /// Appends the text of the first conversion that shows `field` as more than a number. `false` when there is none.
    pub(crate) fn show_field(&self, field: &str, raw: &[u8], kernel: &dyn Kernel, out: &mut Vec<u8>) -> bool {
        let shows = |c: &&Conversion| c.field.as_deref() == Some(field) && c.is_more_than_number();
        match self.conversions().find(shows) {
            Some(conversion) => {
                conversion.render(Context { raw, kernel }, out);
                true
            }
            None => false,
        }
    }

    /// What it needs of the kernel by name: enumerators and variables (`jiffies`), members (`kvm_mmu_page_role.level`),
    /// types whose size matters (`struct page`), `HZ`. Its text is exact only where [`Kernel`] knows them all.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// Whether a conversion shows the bytes of `field` as an address or an identifier (MAC, IP, UUID).
    pub(crate) fn shows_as_binary(&self, field: &str) -> bool {
        let binary = |c: &Conversion| matches!(c.spec.kind, spec::Kind::Pointer(p) if p.dereferences());
        self.conversions().any(|c| c.field.as_deref() == Some(field) && binary(c))
    }

    fn conversions(&self) -> impl Iterator<Item = &Conversion> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Literal(_) => None,
            Piece::Conversion(conversion) => Some(&**conversion),
        })
    }
}
