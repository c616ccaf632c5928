//! The syntax tree of a print format. The names in the tree are not resolved yet.

use super::{ctype::BinaryOp, lex::Number};

/// A type name in a cast, a `sizeof` or a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TypeName<'t> {
    /// The words before the first `*`.
    pub words: Vec<&'t str>,
    /// The number of `*` in the type name.
    pub pointers: usize,
}

impl TypeName<'_> {
    /// Returns the words joined by spaces, as in C, without qualifiers.
    pub fn text(&self) -> String {
        let words = self.words.iter().filter(|word| !matches!(**word, "const" | "volatile" | "static"));
        words.copied().collect::<Vec<_>>().join(" ")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnaryOp {
    Plus,
    Negate,
    Complement,
    Not,
    Address,
    Deref,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ast<'t> {
    Int(Number<'t>),
    Text(Box<[u8]>),
    Name(&'t str),
    Unary(UnaryOp, Box<Ast<'t>>),
    Binary(BinaryOp, Box<[Ast<'t>; 2]>),
    And(Box<[Ast<'t>; 2]>),
    Or(Box<[Ast<'t>; 2]>),
    Cond(Box<[Ast<'t>; 3]>),
    Cast(TypeName<'t>, Box<Ast<'t>>),
    SizeOfType(TypeName<'t>),
    SizeOf(Box<Ast<'t>>),
    Index(Box<[Ast<'t>; 2]>),
    Member(Box<Ast<'t>>, &'t str),
    Call(&'t str, Vec<Ast<'t>>),
    /// `{ a, b }` as an argument or an initializer.
    List(Vec<Ast<'t>>),
    /// `({ ... })`: a block of statements. The last statement gives the value of the block.
    Block(Vec<Statement<'t>>),
}

/// A statement in a `({ ... })` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Statement<'t> {
    /// `int x = value;`, `union role role;`
    Declare { ty: TypeName<'t>, name: &'t str, value: Option<Ast<'t>> },
    /// `role.word = value;`
    Assign { to: Ast<'t>, value: Ast<'t> },
    /// `call(...);`, or the expression that gives the block's value.
    Expression(Ast<'t>),
}
