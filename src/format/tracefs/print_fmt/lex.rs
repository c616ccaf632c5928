//! Lexer: splits the text of a print format into tokens by C's lexical rules. Does not know the grammar.

use super::{PrintFmtError, ctype::IntType};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token<'t> {
    Name(&'t str),
    Int(Number<'t>),
    Text(Box<[u8]>),
    Op(&'static str),
}

/// A number or a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number<'t> {
    pub value: u64,
    pub ty: IntType,
    /// The text of the number or character. The quotes of a character are left out.
    pub text: &'t str,
}

/// All operators. The operators of two characters come first, so that the first match is the longest operator.
const OPERATORS: [&str; 32] = [
    "->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "<", ">",
    "?", ":", ",", ".", "(", ")", "[", "]", "{", "}", "=",
];

/// Returns the tokens of a print format: first the format string, then the arguments.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, PrintFmtError> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    lexer.skip_space();
    if lexer.rest().starts_with('"') {
        tokens.push(Token::Text(lexer.format_string()?));
    }
    while let Some(token) = lexer.next()? {
        match (tokens.last_mut(), token) {
            // C joins adjacent string literals.
            (Some(Token::Text(before)), Token::Text(more)) => {
                *before = [before.as_ref(), more.as_ref()].concat().into();
            }
            (_, token) => tokens.push(token),
        }
    }
    Ok(tokens)
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn next(&mut self) -> Result<Option<Token<'t>>, PrintFmtError> {
        self.skip_space();
        let rest = self.rest();
        let Some(first) = rest.bytes().next() else { return Ok(None) };
        Ok(Some(match first {
            b'"' => {
                let (string, len) = literal(rest, |_| true).ok_or(PrintFmtError::UnclosedString { at: self.at })?;
                self.at += len;
                Token::Text(string)
            }
            b'\'' => self.character()?,
            b'0'..=b'9' => self.number()?,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' => {
                let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'$';
                let len = rest.bytes().position(|b| !word(b)).unwrap_or(rest.len());
                self.at += len;
                Token::Name(&rest[..len])
            }
            b';' => {
                self.at += 1;
                Token::Op(";")
            }
            _ => {
                let op = OPERATORS.iter().find(|op| rest.starts_with(**op));
                let op = op.ok_or(PrintFmtError::Unexpected { what: excerpt(rest), at: self.at })?;
                self.at += op.len();
                Token::Op(op)
            }
        }))
    }

    /// Reads the format string. In the format string, a quote or a line break has no backslash, because the compiler
    /// has already processed the escape sequences. In the other arguments of `TP_printk`, backslashes are kept, because
    /// the preprocessor has turned these arguments into text.
    fn format_string(&mut self) -> Result<Box<[u8]>, PrintFmtError> {
        let closes = |after: &str| matches!(after.trim_start().bytes().next(), None | Some(b',' | b'"'));
        let (string, len) = literal(self.rest(), closes).ok_or(PrintFmtError::UnclosedString { at: self.at })?;
        self.at += len;
        Ok(string)
    }

    fn character(&mut self) -> Result<Token<'t>, PrintFmtError> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let read = match bytes.get(1) {
            Some(b'\\') => escape(&bytes[2..]).map(|(value, len)| (value, len + 2)),
            Some(&plain) => Some((plain, 2)),
            None => None,
        };
        let Some((value, len)) = read.filter(|&(_, len)| bytes.get(len) == Some(&b'\'')) else {
            return Err(PrintFmtError::Unexpected { what: excerpt(rest), at: self.at });
        };
        self.at += len + 1;
        Ok(Token::Int(Number { value: value.into(), ty: IntType::INT, text: &rest[1..len] }))
    }

    fn number(&mut self) -> Result<Token<'t>, PrintFmtError> {
        let rest = self.rest();
        let len = rest.bytes().position(|b| !b.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let word = rest[..len].to_ascii_lowercase();
        let wrong = || PrintFmtError::Unexpected { what: excerpt(rest), at: self.at };
        let digits = word.trim_end_matches(['u', 'l']);
        let suffix = &word[digits.len()..];
        let (radix, digits) = match digits.strip_prefix("0x") {
            Some(hex) => (16, hex),
            None if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
            None => (10, digits),
        };
        let value = u64::from_str_radix(digits, radix).map_err(|_| wrong())?;
        let unsigned = suffix.contains('u');
        let width = if suffix.contains('l') || value > u32::MAX.into() { 8 } else { 4 };
        let fits = value <= if width == 8 { i64::MAX as u64 } else { i32::MAX as u64 };
        // A decimal literal without `u` never has an unsigned type. A hexadecimal or octal literal without `u` may have
        // an unsigned type.
        let ty = match (unsigned, fits) {
            (true, _) => IntType::new(width, false),
            (false, true) => IntType::new(width, true),
            (false, false) if radix == 10 => IntType::LONG,
            (false, false) => IntType::new(width, false),
        };
        self.at += len;
        Ok(Token::Int(Number { value, ty, text: &rest[..len] }))
    }
}

/// Reads a string literal at the start of `text`. Returns the string, and the length of the literal including its
/// quotes. A quote ends the literal if `closes` returns true for the text after the quote.
fn literal(text: &str, closes: impl Fn(&str) -> bool) -> Option<(Box<[u8]>, usize)> {
    let bytes = text.as_bytes();
    let mut string = Vec::new();
    let mut at = 1;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' if closes(&text[at..]) => return Some((string.into(), at)),
            b'\\' => {
                let (value, len) = escape(&bytes[at..])?;
                string.push(value);
                at += len;
            }
            plain => string.push(plain),
        }
    }
    None
}

/// Reads an escape sequence, given the bytes after the backslash. Returns the byte that the sequence stands for, and
/// the length of the sequence without the backslash.
fn escape(after: &[u8]) -> Option<(u8, usize)> {
    let number = |from: usize, most: usize, radix: u32| {
        let digits = after[from..].iter().take(most).map_while(|&b| (b as char).to_digit(radix));
        let (value, len) = digits.fold((0u32, 0), |(value, len), digit| (value * radix + digit, len + 1));
        (value as u8, from + len)
    };
    Some(match after.first()? {
        b'n' => (b'\n', 1),
        b't' => (b'\t', 1),
        b'r' => (b'\r', 1),
        b'a' => (7, 1),
        b'b' => (8, 1),
        b'f' => (12, 1),
        b'v' => (11, 1),
        b'e' => (27, 1),
        b'x' => number(1, 2, 16),
        b'0'..=b'7' => number(0, 3, 8),
        &other => (other, 1),
    })
}

fn excerpt(text: &str) -> String {
    text.chars().take(20).collect()
}
