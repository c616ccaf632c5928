//! Compiler for print formats: resolves the names and types of a syntax tree and returns the expressions that are
//! evaluated for each event. Does not know the text of the print format.

use super::{
    Conversion, Piece, PrintFmt, PrintFmtError,
    ast::{Ast, Statement, TypeName, UnaryOp},
    ctype::{BinaryOp, IntType},
    expr::{Expr, Scale},
    functions::Function,
    lex::Number,
    parse::MAX_HEIGHT,
    spec::{self, Part, Size},
    types::{Element, TEXT, Type, binary, cast, element, folded, indexed, pointee, scale, type_of, wrapped},
};
use crate::tracefs::{Extent, Field, FieldKind};

/// The maximum number of expressions in a compiled print format. Each use of a local variable is replaced by the
/// variable's value, so in a chain of variables, each variable could double the number of expressions.
const MAX_EXPRESSIONS: usize = 100_000;

/// The maximum length of a chain of local variables in which each variable uses the previous one.
const MAX_LOCALS: usize = 16;

/// Compiles a format string and its arguments.
pub(super) fn compile(format: &[u8], arguments: &[Ast<'_>], fields: &[Field]) -> Result<PrintFmt, PrintFmtError> {
    let mut compiler = Compiler::new(fields);
    let mut print_fmt = compiler.printf(format, arguments)?;
    compiler.names.sort();
    compiler.names.dedup();
    print_fmt.names = compiler.names.into();
    Ok(print_fmt)
}

/// Compiles an expression that uses no field.
pub(super) fn constant(ast: &Ast<'_>) -> Compiled {
    Compiler::new(&[]).compile(ast)
}

pub(super) type Compiled = Result<(Expr, Type), PrintFmtError>;

/// A local variable of a `({ ... })` block.
struct Local<'c, 't> {
    name: &'t str,
    ty: &'c TypeName<'t>,
    value: Option<&'c Ast<'t>>,
    /// The number of locals that the initializer of this local can use: the locals that were declared before this one.
    sees: usize,
    /// The members that were assigned, with the assigned values.
    members: Vec<(&'t str, &'c Ast<'t>)>,
    /// The arguments of the `trace_seq_printf` calls that come after the declaration of this variable.
    printed: Vec<&'c [Ast<'t>]>,
}

pub(super) struct Compiler<'c, 't> {
    fields: &'c [Field],
    locals: Vec<Local<'c, 't>>,
    /// The number of locals that the current expression can use.
    visible: usize,
    left: usize,
    names: Vec<Box<str>>,
    /// The names of the fields that the expressions use, in the order of use.
    used: Vec<Box<str>>,
    inlined: usize,
    depth: usize,
}

impl<'c, 't> Compiler<'c, 't> {
    fn new(fields: &'c [Field]) -> Self {
        Compiler {
            fields,
            locals: Vec::new(),
            visible: 0,
            left: MAX_EXPRESSIONS,
            names: Vec::new(),
            used: Vec::new(),
            inlined: 0,
            depth: 0,
        }
    }

    fn printf(&mut self, format: &[u8], arguments: &'c [Ast<'t>]) -> Result<PrintFmt, PrintFmtError> {
        let mut arguments = arguments.iter();
        let mut pieces = Vec::new();
        for part in spec::parts(format)? {
            pieces.push(match part {
                Part::Literal(literal) => Piece::Literal(literal),
                Part::Conversion(spec) => {
                    let mut sized = |size| match size {
                        Size::Argument => self.int(arguments.next().ok_or(PrintFmtError::MissingArgument)?).map(Some),
                        _ => Ok(None),
                    };
                    let (width, precision) = (sized(spec.width)?, sized(spec.precision)?);
                    let from = self.used.len();
                    let value = self.value(arguments.next().ok_or(PrintFmtError::MissingArgument)?)?;
                    let field = self.used.get(from).cloned();
                    Piece::Conversion(Box::new(Conversion { spec, width, precision, value, field }))
                }
            });
        }
        Ok(PrintFmt { pieces: pieces.into(), names: Box::default() })
    }

    /// Compiles an expression of any type.
    pub fn value(&mut self, ast: &'c Ast<'t>) -> Result<Expr, PrintFmtError> {
        Ok(self.compile(ast)?.0)
    }

    /// Compiles an expression that is used as a number.
    pub fn int(&mut self, ast: &'c Ast<'t>) -> Result<Expr, PrintFmtError> {
        self.value(ast)
    }

    /// Returns the position and the element type of an array, given the name of its field.
    pub fn extent(&mut self, ast: &Ast<'t>) -> Result<(Extent, IntType), PrintFmtError> {
        let Ast::Name(name) = ast else { return Err(unsupported("an array that is not a field")) };
        let field = self.field(name)?;
        let extent = field.extent().ok_or_else(|| unsupported(name))?;
        Ok((extent, element(field)))
    }

    fn field(&mut self, name: &str) -> Result<&'c Field, PrintFmtError> {
        let field = self.fields.iter().find(|field| field.name == name);
        let field = field.ok_or_else(|| PrintFmtError::UnknownField { field: name.to_owned() })?;
        self.used.push(name.into());
        Ok(field)
    }

    fn compile(&mut self, ast: &'c Ast<'t>) -> Compiled {
        self.left = self.left.checked_sub(1).ok_or(PrintFmtError::TooLarge)?;
        // A local variable is replaced by its value. So the height of the value's tree is added to the depth.
        self.depth += 1;
        let resolved = if self.depth > MAX_HEIGHT { Err(PrintFmtError::TooDeep) } else { self.resolve(ast) };
        self.depth -= 1;
        let (expr, ty) = resolved?;
        Ok((folded(expr), ty))
    }

    fn resolve(&mut self, ast: &'c Ast<'t>) -> Compiled {
        Ok(match ast {
            Ast::Int(Number { value, ty, .. }) => (Expr::Int(ty.wrap(*value)), Type::Int(*ty)),
            Ast::Text(text) => (Expr::Text(text.clone()), TEXT),
            Ast::Name(name) => self.name(name)?,
            Ast::Member(base, member) => self.member(base, member)?,
            Ast::Unary(op, value) => self.unary(*op, value)?,
            Ast::Binary(op, operands) => {
                let (a, b) = (self.compile(&operands[0])?, self.compile(&operands[1])?);
                let result = binary(*op, a, b);
                if let (Expr::Offset { scale: Scale::Type(name), .. }, _) = &result {
                    self.names.push(name.clone());
                }
                result
            }
            Ast::And(operands) => (Expr::And(self.both(operands)?), Type::Int(IntType::INT)),
            Ast::Or(operands) => (Expr::Or(self.both(operands)?), Type::Int(IntType::INT)),
            Ast::Cond(parts) => self.cond(parts)?,
            Ast::Cast(ty, value) => {
                let value = self.compile(value)?;
                cast(ty, value)
            }
            Ast::SizeOfType(ty) => {
                (Expr::SizeOf(scale(&type_of(ty, &Type::Int(IntType::INT)))), Type::Int(IntType::ULONG))
            }
            Ast::SizeOf(value) => self.size_of(value)?,
            Ast::Index(parts) => self.index(&parts[0], &parts[1])?,
            Ast::Call(function, arguments) => self.call(function, arguments)?,
            Ast::List(_) => return Err(unsupported("{")),
            Ast::Block(statements) => self.block(statements)?,
        })
    }

    fn both(&mut self, operands: &'c [Ast<'t>; 2]) -> Result<Box<[Expr; 2]>, PrintFmtError> {
        Ok(Box::new([self.value(&operands[0])?, self.value(&operands[1])?]))
    }

    fn name(&mut self, name: &'t str) -> Compiled {
        if let Some(at) = self.locals[..self.visible].iter().rposition(|local| local.name == name) {
            return self.local(at);
        }
        match name {
            "NULL" => return Ok((Expr::Int(0), Type::Pointer(Element::Unknown))),
            "true" => return Ok((Expr::Int(1), Type::Int(IntType::INT))),
            "false" => return Ok((Expr::Int(0), Type::Int(IntType::INT))),
            _ => {}
        }
        self.names.push(name.into());
        // A name with an upper-case letter is an enumerator. An enumerator's value comes from BTF and fits in a long.
        // Other names are kernel variables of type unsigned long.
        let ty = if name.bytes().any(|b| b.is_ascii_uppercase()) { IntType::LONG } else { IntType::ULONG };
        Ok((Expr::Name(name.into()), Type::Int(ty)))
    }

    /// Compiles the value of a local variable. The value can use only the locals that were declared before the
    /// variable.
    fn local(&mut self, at: usize) -> Compiled {
        let Local { ty, value, sees, .. } = self.locals[at];
        let printed = self.locals[at].printed.clone();
        let Some(value) = value else { return Err(unsupported(self.locals[at].name)) };
        if matches!(value, Ast::Call("trace_seq_buffer_ptr", _)) {
            let printed = printed.into_iter().map(|arguments| self.printed(arguments));
            return Ok((Expr::Printed(printed.collect::<Result<_, _>>()?), TEXT));
        }
        let value = self.inline(sees, |inner| inner.compile(value))?;
        Ok(cast(ty, value))
    }

    fn inline<T>(
        &mut self,
        sees: usize,
        inner: impl FnOnce(&mut Self) -> Result<T, PrintFmtError>,
    ) -> Result<T, PrintFmtError> {
        self.inlined += 1;
        let visible = std::mem::replace(&mut self.visible, sees);
        let result = if self.inlined > MAX_LOCALS { Err(PrintFmtError::TooDeep) } else { inner(self) };
        self.visible = visible;
        self.inlined -= 1;
        result
    }

    fn printed(&mut self, arguments: &'c [Ast<'t>]) -> Result<PrintFmt, PrintFmtError> {
        match arguments {
            [_, Ast::Text(format), arguments @ ..] => {
                let sees = self.visible;
                self.inline(sees, |inner| inner.printf(format, arguments))
            }
            _ => Err(PrintFmtError::WrongArguments { function: "trace_seq_printf".into() }),
        }
    }

    fn block(&mut self, statements: &'c [Statement<'t>]) -> Compiled {
        let (outer, outer_visible) = (self.locals.len(), self.visible);
        // A block adds its variables at the end of `locals`, and makes all locals visible. So a block is not supported
        // where some locals must stay hidden.
        if outer != outer_visible {
            return Err(unsupported("a block in the value of a local variable"));
        }
        let mut value = None;
        for statement in statements {
            value = None;
            match statement {
                Statement::Declare { ty, name, value } => {
                    let sees = self.locals.len();
                    let local =
                        Local { name, ty, value: value.as_ref(), sees, members: Vec::new(), printed: Vec::new() };
                    self.locals.push(local);
                    self.visible = self.locals.len();
                }
                Statement::Assign { to: Ast::Member(base, member), value } => {
                    let Ast::Name(name) = &**base else { return Err(unsupported("=")) };
                    let local = self.locals.iter_mut().rfind(|local| local.name == *name);
                    local.ok_or_else(|| unsupported(name))?.members.push((member, value));
                }
                Statement::Assign { .. } => return Err(unsupported("=")),
                Statement::Expression(Ast::Call("trace_seq_printf", arguments)) => {
                    for local in &mut self.locals {
                        local.printed.push(arguments);
                    }
                }
                Statement::Expression(expression) => value = Some(expression),
            }
        }
        let value = value.ok_or_else(|| unsupported("a block without a value")).and_then(|value| self.compile(value));
        self.locals.truncate(outer);
        self.visible = outer_visible;
        value
    }

    fn member(&mut self, base: &'c Ast<'t>, member: &'t str) -> Compiled {
        match base {
            Ast::Name("REC" | "__entry") => {
                let field = self.field(member)?;
                if let Some(extent) = field.extent() {
                    return Ok((Expr::Data(extent), Type::Pointer(Element::Int(element(field)))));
                }
                if field.kind == FieldKind::NumberIfKnown {
                    return Ok((Expr::LoadIfKnown(field.offset), Type::Int(IntType::ULONG)));
                }
                let ty = match field.kind.is_address() {
                    true => Type::Pointer(pointee(&field.type_text)),
                    false => Type::Int(field.slot()),
                };
                Ok((Expr::Load { offset: field.offset, ty: field.slot() }, ty))
            }
            Ast::Name(name) => {
                let at = self.locals[..self.visible].iter().rposition(|local| local.name == *name);
                let local = &self.locals[at.ok_or_else(|| unsupported(name))?];
                let (tag, sees) = (local.ty.words.last().copied().unwrap_or_default(), self.visible);
                let assigned = |wanted: Option<&str>| {
                    local
                        .members
                        .iter()
                        .rfind(|(name, _)| wanted.is_none_or(|wanted| wanted == *name))
                        .map(|&(_, value)| value)
                };
                if let Some(value) = assigned(Some(member)) {
                    return self.inline(sees, |inner| inner.compile(value));
                }
                let value = assigned(None).ok_or_else(|| unsupported(name))?;
                let value = Box::new(self.inline(sees, |inner| inner.value(value))?);
                let expr = Expr::Member { value, tag: tag.into(), member: member.into() };
                self.names.push(format!("{tag}.{member}").into());
                Ok((expr, Type::Int(IntType::UINT)))
            }
            _ => Err(unsupported(member)),
        }
    }

    fn unary(&mut self, op: UnaryOp, value: &'c Ast<'t>) -> Compiled {
        if op == UnaryOp::Deref {
            let base = self.compile(value)?;
            return Ok(indexed(base, Expr::Int(0)));
        }
        let (expr, ty) = self.compile(value)?;
        let int = match ty {
            Type::Int(ty) => ty.promoted(),
            Type::Pointer(_) => IntType::ULONG,
        };
        Ok(match op {
            UnaryOp::Plus => (expr, Type::Int(int)),
            UnaryOp::Negate => (Expr::Binary(BinaryOp::Subtract, int, Box::new([Expr::Int(0), expr])), Type::Int(int)),
            UnaryOp::Complement => {
                (Expr::Binary(BinaryOp::BitXor, int, Box::new([expr, Expr::Int(u64::MAX)])), Type::Int(int))
            }
            UnaryOp::Not => (Expr::Not(Box::new(expr)), Type::Int(IntType::INT)),
            // Only arrays and scalar fields of the event have an address.
            UnaryOp::Address | UnaryOp::Deref => match (expr, ty) {
                (Expr::Load { offset, ty }, _) => {
                    let extent = Extent::Fixed { offset, size: ty.width.into() };
                    (Expr::Data(extent), Type::Pointer(Element::Int(ty)))
                }
                (Expr::Element { base, index, ty }, _) => {
                    let scale = Scale::Bytes(ty.width.into());
                    (Expr::Offset { base, by: index, scale }, Type::Pointer(Element::Int(ty)))
                }
                (data @ (Expr::Data(_) | Expr::Offset { .. }), ty) => (data, ty),
                _ => return Err(unsupported("&")),
            },
        })
    }

    fn cond(&mut self, parts: &'c [Ast<'t>; 3]) -> Compiled {
        let cond = self.value(&parts[0])?;
        let (yes, yes_type) = self.compile(&parts[1])?;
        let (no, no_type) = self.compile(&parts[2])?;
        let ty = match (yes_type, no_type) {
            (Type::Int(a), Type::Int(b)) => {
                let ty = a.common(b);
                let parts = Box::new([cond, wrapped(ty, yes), wrapped(ty, no)]);
                return Ok((Expr::Cond(parts), Type::Int(ty)));
            }
            (Type::Pointer(Element::Unknown), other @ Type::Pointer(_)) => other,
            (pointer @ Type::Pointer(_), _) | (_, pointer) => pointer,
        };
        Ok((Expr::Cond(Box::new([cond, yes, no])), ty))
    }

    fn size_of(&mut self, value: &'c Ast<'t>) -> Compiled {
        let size = match value {
            Ast::Member(base, member) if matches!(**base, Ast::Name("REC" | "__entry")) => {
                self.field(member)?.size as u64
            }
            Ast::Text(text) => text.len() as u64 + 1,
            other => return Ok((Expr::SizeOf(scale(&self.compile(other)?.1)), Type::Int(IntType::ULONG))),
        };
        Ok((Expr::Int(size), Type::Int(IntType::ULONG)))
    }

    fn index(&mut self, base: &'c Ast<'t>, index: &'c Ast<'t>) -> Compiled {
        let index = self.int(index)?;
        if let Ast::Name(name) = base
            && let Some(at) = self.locals[..self.visible].iter().rposition(|local| local.name == *name)
            && let Local { value: Some(Ast::List(list)), sees, .. } = self.locals[at]
        {
            let of =
                self.inline(sees, |inner| list.iter().map(|item| inner.compile(item)).collect::<Result<Vec<_>, _>>())?;
            let ty = of.first().map_or(TEXT, |(_, ty)| ty.clone());
            let of = of.into_iter().map(|(expr, _)| expr).collect();
            return Ok((Expr::Choice { elements: of, index: Box::new(index) }, ty));
        }
        let base = self.compile(base)?;
        Ok(indexed(base, index))
    }

    fn call(&mut self, function: &'t str, arguments: &'c [Ast<'t>]) -> Compiled {
        let ulong = Type::Int(IntType::ULONG);
        if let Some(known) = Function::compile(self, function, arguments)? {
            return Ok((Expr::Function(Box::new(known)), TEXT));
        }
        Ok(match (function, arguments) {
            ("__get_str" | "__get_rel_str", [name]) => (Expr::Data(self.extent(name)?.0), TEXT),
            ("__get_dynamic_array" | "__get_rel_dynamic_array" | "__get_sockaddr" | "__get_rel_sockaddr", [name]) => {
                let (extent, element) = self.extent(name)?;
                (Expr::Data(extent), Type::Pointer(Element::Int(element)))
            }
            ("__get_dynamic_array_len" | "__get_rel_dynamic_array_len", [name]) => {
                (Expr::DataLen(self.extent(name)?.0), Type::Int(IntType::INT))
            }
            ("__builtin_expect", [value, _]) => self.compile(value)?,
            ("__builtin_constant_p", [_]) => (Expr::Int(0), Type::Int(IntType::INT)),
            ("__builtin_choose_expr", [cond, yes, no]) => {
                let (cond, (yes, ty), no) = (self.value(cond)?, self.compile(yes)?, self.value(no)?);
                (Expr::Cond(Box::new([cond, yes, no])), ty)
            }
            ("__print_ns_to_secs", [ns]) => self.nanoseconds(BinaryOp::Divide, ns, IntType::ULONG)?,
            ("__print_ns_without_secs", [ns]) => self.nanoseconds(BinaryOp::Remainder, ns, IntType::UINT)?,
            ("mc_event_error_type", [value]) => {
                // `enum hw_event_mc_err_type` in include/linux/edac.h. Any other value is "Info" as well.
                let of =
                    ["Corrected", "Uncorrected", "Deferred", "Fatal"].map(|name| Expr::Text(name.as_bytes().into()));
                let index = Box::new(wrapped(IntType::UINT, self.value(value)?));
                let known = Expr::Binary(BinaryOp::Less, IntType::UINT, Box::new([*index.clone(), Expr::Int(4)]));
                let name = Expr::Choice { elements: of.into(), index };
                (Expr::Cond(Box::new([known, name, Expr::Text(b"Info".as_slice().into())])), TEXT)
            }
            ("jiffies_to_msecs", [value]) => {
                self.names.push("HZ".into());
                (Expr::JiffiesToMsecs(Box::new(self.int(value)?)), Type::Int(IntType::UINT))
            }
            ("ntohs" | "htons" | "__builtin_bswap16" | "__fswab16" | "be16_to_cpu" | "cpu_to_be16", [value]) => {
                self.swapped(2, function, value)?
            }
            ("ntohl" | "htonl" | "__builtin_bswap32" | "__fswab32" | "be32_to_cpu" | "cpu_to_be32", [value]) => {
                self.swapped(4, function, value)?
            }
            ("__builtin_bswap64" | "__fswab64" | "be64_to_cpu" | "cpu_to_be64", [value]) => {
                self.swapped(8, function, value)?
            }
            ("le16_to_cpu" | "le32_to_cpu" | "le64_to_cpu", [value]) if cfg!(target_endian = "little") => {
                (self.value(value)?, ulong)
            }
            _ => return Err(PrintFmtError::UnknownFunction { function: function.to_owned() }),
        })
    }

    fn nanoseconds(&mut self, op: BinaryOp, ns: &'c Ast<'t>, ty: IntType) -> Compiled {
        let operands = Box::new([self.int(ns)?, Expr::Int(1_000_000_000)]);
        Ok((Expr::Binary(op, IntType::ULONG, operands), Type::Int(ty)))
    }

    fn swapped(&mut self, width: u8, function: &str, value: &'c Ast<'t>) -> Compiled {
        let ty = IntType::new(width, false);
        let value = wrapped(ty, self.int(value)?);
        let swaps = cfg!(target_endian = "little") || function.starts_with("__");
        Ok((if swaps { Expr::Swapped(width, Box::new(value)) } else { value }, Type::Int(ty)))
    }
}

fn unsupported(what: &str) -> PrintFmtError {
    PrintFmtError::Unsupported { what: what.to_owned() }
}
