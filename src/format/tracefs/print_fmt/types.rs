//! The C types of expressions, and how casts, conversions and operators change them. Resolves no names.

use super::{
    ast::TypeName,
    ctype::{BinaryOp, IntType},
    expr::{Context, Expr, Scale},
};
use crate::tracefs::{ElementType, Field, NoKernel};

/// The type of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    Int(IntType),
    Pointer(Element),
}

/// The type of the object that a pointer points to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Element {
    Int(IntType),
    Named(Box<str>),
    Unknown,
}

/// The type of text.
pub(super) const TEXT: Type = Type::Pointer(Element::Int(IntType::CHAR));

pub(super) fn element(field: &Field) -> IntType {
    field.kind.element().and_then(ElementType::int).unwrap_or(IntType::CHAR)
}

/// Returns the type of the object that a pointer of this type points to.
pub(super) fn pointee(type_text: &str) -> Element {
    let base = type_text.trim_end_matches([' ', '*']);
    match IntType::named(base) {
        Some(ty) if type_text.matches('*').count() == 1 => Element::Int(ty),
        _ if type_text.matches('*').count() > 1 => Element::Int(IntType::ULONG),
        _ => Element::Unknown,
    }
}

/// Returns the type with this name, or the type of `value` if the name is not known.
pub(super) fn type_of(name: &TypeName<'_>, value: &Type) -> Type {
    let text = name.text();
    match (name.pointers, IntType::named(&text)) {
        (0, Some(ty)) => Type::Int(ty),
        (0, None) if text.starts_with("struct ") || text.starts_with("union ") => {
            Type::Pointer(Element::Named(text.into()))
        }
        (0, None) => value.clone(),
        (1, Some(ty)) => Type::Pointer(Element::Int(ty)),
        (1, None) if text == "void" => Type::Pointer(Element::Unknown),
        (1, None) => Type::Pointer(Element::Named(text.into())),
        _ => Type::Pointer(Element::Int(IntType::ULONG)),
    }
}

pub(super) fn cast(name: &TypeName<'_>, (expr, ty): (Expr, Type)) -> (Expr, Type) {
    let to = type_of(name, &ty);
    match (&to, name.text().as_str()) {
        // Conversion to bool gives 1 for every value except zero.
        (Type::Int(_), "bool" | "_Bool") => (Expr::Not(Box::new(Expr::Not(Box::new(expr)))), to),
        (Type::Int(int), _) => (wrapped(*int, expr), to),
        (Type::Pointer(_), _) => (expr, to),
    }
}

/// Converts `expr` to `ty`. Text and arrays are not changed.
pub(super) fn wrapped(ty: IntType, expr: Expr) -> Expr {
    match expr {
        Expr::Int(value) => Expr::Int(ty.wrap(value)),
        Expr::Load { ty: from, .. } if from == ty => expr,
        expr if expr.is_text() => expr,
        expr => Expr::Wrap(ty, Box::new(expr)),
    }
}

pub(super) fn scale(ty: &Type) -> Scale {
    match ty {
        Type::Int(ty) => Scale::Bytes(ty.width.into()),
        // For a struct, `type_of` returns a pointer to the struct, because there is no type for the struct itself.
        Type::Pointer(Element::Named(name)) => Scale::Type(name.clone()),
        Type::Pointer(_) => Scale::Bytes(8),
    }
}

pub(super) fn indexed((base, ty): (Expr, Type), index: Expr) -> (Expr, Type) {
    let ty = match ty {
        Type::Pointer(Element::Int(ty)) => ty,
        _ => IntType::CHAR,
    };
    (Expr::Element { base: Box::new(base), index: Box::new(index), ty }, Type::Int(ty))
}

pub(super) fn binary(op: BinaryOp, (a, a_type): (Expr, Type), (b, b_type): (Expr, Type)) -> (Expr, Type) {
    let int = |ty: &Type| match ty {
        Type::Int(ty) => *ty,
        Type::Pointer(_) => IntType::ULONG,
    };
    if let (BinaryOp::Add, Type::Pointer(element), Type::Int(_)) = (op, &a_type, &b_type) {
        let scale = match element {
            Element::Int(ty) => Scale::Bytes(ty.width.into()),
            Element::Named(name) => Scale::Type(name.clone()),
            Element::Unknown => Scale::Bytes(1),
        };
        return (Expr::Offset { base: Box::new(a), by: Box::new(b), scale }, a_type);
    }
    let ty = if op.is_shift() { int(&a_type).promoted() } else { int(&a_type).common(int(&b_type)) };
    let result = if op.is_comparison() { IntType::INT } else { ty };
    (Expr::Binary(op, ty, Box::new([a, b])), Type::Int(result))
}

/// If the value of `expr` does not depend on the event or on the kernel, evaluates it now. Otherwise returns `expr`
/// unchanged.
pub(super) fn folded(expr: Expr) -> Expr {
    let constant = |expr: &Expr| matches!(expr, Expr::Int(_));
    let fixed = match &expr {
        Expr::Wrap(_, value) | Expr::Not(value) => constant(value),
        Expr::Binary(_, _, operands) | Expr::And(operands) | Expr::Or(operands) => operands.iter().all(constant),
        Expr::Cond(parts) if constant(&parts[0]) => {
            let Expr::Cond(parts) = expr else { return expr };
            let [cond, yes, no] = *parts;
            return if matches!(cond, Expr::Int(0)) { no } else { yes };
        }
        Expr::SizeOf(Scale::Bytes(_)) => true,
        _ => false,
    };
    if fixed && let Some(value) = expr.int(Context { raw: &[], kernel: &NoKernel }) {
        return Expr::Int(value);
    }
    expr
}
