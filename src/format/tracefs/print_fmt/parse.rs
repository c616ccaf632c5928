//! Parser: makes syntax trees from tokens. The parser knows the part of C's grammar that print formats use. It resolves
//! no names.

use super::{
    PrintFmtError,
    ast::{Ast, Statement, TypeName, UnaryOp},
    ctype::{BinaryOp, IntType},
    lex::Token,
};

/// The maximum nesting of expressions in the text. The print formats of Linux 6.18 have less than 25 levels.
const MAX_DEPTH: usize = 80;

/// The maximum height of an expression's tree. A long chain of operators makes a high tree without any nesting in the
/// text. The trees of the print formats of Linux 6.18 are less than 30 high.
pub(super) const MAX_HEIGHT: usize = 120;

/// Returns the format string and the trees of the arguments after it.
pub(super) fn parse<'t>(tokens: &[Token<'t>]) -> Result<(Box<[u8]>, Vec<Ast<'t>>), PrintFmtError> {
    let Some((Token::Text(format), rest)) = tokens.split_first() else {
        return Err(PrintFmtError::NoFormatString);
    };
    let mut parser = Parser { tokens: rest, at: 0, depth: 0, height: 0 };
    let mut arguments = Vec::new();
    while parser.accept(",") {
        arguments.push(parser.expression()?);
    }
    if parser.at < parser.tokens.len() {
        return Err(parser.unexpected());
    }
    Ok((format.clone(), arguments))
}

struct Parser<'p, 't> {
    tokens: &'p [Token<'t>],
    at: usize,
    depth: usize,
    /// The height of the tree that was parsed last.
    height: usize,
}

type Parsed<'t> = Result<Ast<'t>, PrintFmtError>;

impl<'t> Parser<'_, 't> {
    fn peek(&self) -> Option<&Token<'t>> {
        self.tokens.get(self.at)
    }

    fn peek_op(&self, ahead: usize) -> &'static str {
        match self.tokens.get(self.at + ahead) {
            Some(Token::Op(op)) => op,
            _ => "",
        }
    }

    fn accept(&mut self, op: &str) -> bool {
        let here = self.peek_op(0) == op;
        self.at += usize::from(here);
        here
    }

    fn expect(&mut self, op: &str) -> Result<(), PrintFmtError> {
        if self.accept(op) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn name(&mut self) -> Result<&'t str, PrintFmtError> {
        match self.peek() {
            Some(Token::Name(name)) => {
                let name = *name;
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.unexpected()),
        }
    }

    fn unexpected(&self) -> PrintFmtError {
        let what = match self.peek() {
            None => return PrintFmtError::UnexpectedEnd,
            Some(Token::Name(name)) => name.to_string(),
            Some(Token::Int(number)) => number.value.to_string(),
            Some(Token::Text(text)) => format!("\"{}\"", String::from_utf8_lossy(text)),
            Some(Token::Op(op)) => op.to_string(),
        };
        PrintFmtError::Unexpected { what, at: self.at }
    }

    /// Sets the height of a new tree. `below` is the height of its highest subtree. The limit keeps functions that walk
    /// the tree recursively from overflowing the stack.
    fn grow(&mut self, below: usize) -> Result<(), PrintFmtError> {
        self.height = below + 1;
        if self.height > MAX_HEIGHT { Err(PrintFmtError::TooDeep) } else { Ok(()) }
    }

    /// Runs `inner` one nesting level deeper. The limit keeps this recursive parser from overflowing the stack.
    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, PrintFmtError>) -> Result<T, PrintFmtError> {
        self.depth += 1;
        let result = if self.depth > MAX_DEPTH { Err(PrintFmtError::TooDeep) } else { inner(self) };
        self.depth -= 1;
        result
    }

    fn expression(&mut self) -> Parsed<'t> {
        self.deeper(|parser| {
            let cond = parser.binary(0)?;
            if !parser.accept("?") {
                return Ok(cond);
            }
            let mut below = parser.height;
            let yes = parser.expression()?;
            below = below.max(parser.height);
            parser.expect(":")?;
            let no = parser.expression()?;
            parser.grow(below.max(parser.height))?;
            Ok(Ast::Cond(Box::new([cond, yes, no])))
        })
    }

    fn binary(&mut self, least: u8) -> Parsed<'t> {
        let mut left = self.unary()?;
        while let Some((level, op)) = binary_op(self.peek_op(0)).filter(|&(level, _)| level >= least) {
            let below = self.height;
            self.at += 1;
            let both = Box::new([left, self.binary(level + 1)?]);
            left = match op {
                Infix::Arithmetic(op) => Ast::Binary(op, both),
                Infix::And => Ast::And(both),
                Infix::Or => Ast::Or(both),
            };
            self.grow(below.max(self.height))?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed<'t> {
        let op = match self.peek_op(0) {
            "+" => UnaryOp::Plus,
            "-" => UnaryOp::Negate,
            "~" => UnaryOp::Complement,
            "!" => UnaryOp::Not,
            "&" => UnaryOp::Address,
            "*" => UnaryOp::Deref,
            "(" => {
                if let Some((ty, len)) = self.cast() {
                    self.at += len;
                    let value = self.deeper(Self::unary)?;
                    self.grow(self.height)?;
                    return Ok(Ast::Cast(ty, Box::new(value)));
                }
                return self.postfix();
            }
            _ => return self.postfix(),
        };
        self.at += 1;
        let value = self.deeper(Self::unary)?;
        self.grow(self.height)?;
        Ok(Ast::Unary(op, Box::new(value)))
    }

    /// If a cast `(type)` starts at the current token, returns its type and its length in tokens.
    fn cast(&self) -> Option<(TypeName<'t>, usize)> {
        let (ty, len) = self.type_name(1)?;
        if self.peek_op(1 + len) != ")" {
            return None;
        }
        let next = self.tokens.get(self.at + len + 2)?;
        let sure = ty.pointers > 0 || IntType::named(&ty.text()).is_some() || ty.words.len() > 1;
        // A single name in parentheses is either an unknown typedef or a value. Before an operator that can be unary or
        // binary (`-`), the name is taken for a value.
        let operand = match next {
            Token::Op(op) => matches!(*op, "(" | "~" | "!") || (sure && matches!(*op, "-" | "+" | "*" | "&")),
            _ => true,
        };
        operand.then_some((ty, len + 2))
    }

    /// Returns the type name that starts `ahead` tokens after the current token, and the length of the type name in
    /// tokens.
    fn type_name(&self, ahead: usize) -> Option<(TypeName<'t>, usize)> {
        let from = self.at + ahead;
        let mut ty = TypeName { words: Vec::new(), pointers: 0 };
        let mut len = 0;
        let mut complete = false;
        loop {
            match self.tokens.get(from + len) {
                Some(Token::Name("const" | "volatile" | "static")) => {}
                Some(Token::Name(word)) if ty.pointers == 0 => {
                    let tag = matches!(ty.words.last(), Some(&("struct" | "union" | "enum")));
                    let keyword = is_type_keyword(word);
                    if complete && !keyword && !tag {
                        break;
                    }
                    complete = !matches!(*word, "struct" | "union" | "enum");
                    ty.words.push(word);
                }
                Some(Token::Op("*")) if complete => ty.pointers += 1,
                _ => break,
            }
            len += 1;
        }
        complete.then_some((ty, len))
    }

    fn postfix(&mut self) -> Parsed<'t> {
        let mut value = self.primary()?;
        loop {
            let below = self.height;
            value = if self.accept("[") {
                let index = self.expression()?;
                self.expect("]")?;
                Ast::Index(Box::new([value, index]))
            } else if self.accept("->") || self.accept(".") {
                Ast::Member(Box::new(value), self.name()?)
            } else {
                return Ok(value);
            };
            self.grow(below.max(self.height))?;
        }
    }

    fn primary(&mut self) -> Parsed<'t> {
        self.height = 1;
        match self.peek().cloned() {
            Some(Token::Int(number)) => {
                self.at += 1;
                Ok(Ast::Int(number))
            }
            Some(Token::Text(text)) => {
                self.at += 1;
                Ok(Ast::Text(text))
            }
            Some(Token::Name("sizeof")) => {
                self.at += 1;
                self.size_of()
            }
            Some(Token::Name(name)) => {
                self.at += 1;
                if !self.accept("(") {
                    return Ok(Ast::Name(name));
                }
                Ok(Ast::Call(name, self.list(")")?))
            }
            Some(Token::Op("{")) => {
                self.at += 1;
                Ok(Ast::List(self.list("}")?))
            }
            Some(Token::Op("(")) if self.peek_op(1) == "{" => {
                self.at += 2;
                let block = self.deeper(Self::block)?;
                self.expect(")")?;
                Ok(block)
            }
            Some(Token::Op("(")) => {
                self.at += 1;
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            _ => Err(self.unexpected()),
        }
    }

    fn size_of(&mut self) -> Parsed<'t> {
        if self.peek_op(0) == "("
            && let Some((ty, len)) = self.type_name(1)
            && self.peek_op(1 + len) == ")"
        {
            self.at += len + 2;
            return Ok(Ast::SizeOfType(ty));
        }
        let value = self.deeper(Self::unary)?;
        self.grow(self.height)?;
        Ok(Ast::SizeOf(Box::new(value)))
    }

    /// Parses expressions, separated by commas, up to `close`. A comma after the last expression is allowed.
    fn list(&mut self, close: &str) -> Result<Vec<Ast<'t>>, PrintFmtError> {
        let mut list = Vec::new();
        let mut below = 0;
        while !self.accept(close) {
            list.push(self.expression()?);
            below = below.max(self.height);
            if !self.accept(",") {
                self.expect(close)?;
                break;
            }
        }
        self.grow(below)?;
        Ok(list)
    }

    fn block(&mut self) -> Parsed<'t> {
        let mut statements = Vec::new();
        let mut below = 0;
        while !self.accept("}") {
            if self.accept(";") {
                continue;
            }
            statements.push(self.statement()?);
            below = below.max(self.height);
            if !self.accept(";") {
                self.expect("}")?;
                break;
            }
        }
        self.grow(below)?;
        Ok(Ast::Block(statements))
    }

    fn statement(&mut self) -> Result<Statement<'t>, PrintFmtError> {
        if let Some((ty, len)) = self.type_name(0)
            && let Some(Token::Name(name)) = self.tokens.get(self.at + len)
        {
            let name = *name;
            self.at += len + 1;
            if self.accept("[") && !self.accept("]") {
                self.expression()?;
                self.expect("]")?;
            }
            let value = if self.accept("=") { Some(self.expression()?) } else { None };
            return Ok(Statement::Declare { ty, name, value });
        }
        let to = self.expression()?;
        if self.accept("=") {
            let below = self.height;
            let value = self.expression()?;
            self.height = below.max(self.height);
            return Ok(Statement::Assign { to, value });
        }
        Ok(Statement::Expression(to))
    }
}

fn is_type_keyword(word: &str) -> bool {
    matches!(
        word,
        "unsigned" | "signed" | "long" | "short" | "int" | "char" | "void" | "struct" | "union" | "enum" | "_Bool"
    )
}

enum Infix {
    Arithmetic(BinaryOp),
    And,
    Or,
}

/// Returns the precedence of an infix operator, and its meaning. A larger precedence means that the operator binds more
/// tightly.
fn binary_op(op: &str) -> Option<(u8, Infix)> {
    use BinaryOp::*;
    let arithmetic = |level, op| Some((level, Infix::Arithmetic(op)));
    match op {
        "||" => Some((0, Infix::Or)),
        "&&" => Some((1, Infix::And)),
        "|" => arithmetic(2, BitOr),
        "^" => arithmetic(3, BitXor),
        "&" => arithmetic(4, BitAnd),
        "==" => arithmetic(5, Equal),
        "!=" => arithmetic(5, NotEqual),
        "<" => arithmetic(6, Less),
        "<=" => arithmetic(6, LessEqual),
        ">" => arithmetic(6, Greater),
        ">=" => arithmetic(6, GreaterEqual),
        "<<" => arithmetic(7, ShiftLeft),
        ">>" => arithmetic(7, ShiftRight),
        "+" => arithmetic(8, Add),
        "-" => arithmetic(8, Subtract),
        "*" => arithmetic(9, Multiply),
        "/" => arithmetic(9, Divide),
        "%" => arithmetic(9, Remainder),
        _ => None,
    }
}
