//! The parameters of a function and the kind of its result, from DWARF. This module does not know in which registers
//! the parameters and the result are passed.

use gimli::{AttributeValue, DebuggingInformationEntry, UnitRef, constants as dw};
use gimli::{EndianArcSlice, Reader as _};

use super::dwarf::Dwarf;

type Reader = EndianArcSlice<gimli::RunTimeEndian>;
type Entry = DebuggingInformationEntry<Reader>;
/// A callback for the value of an attribute. The callback also gets the unit that references in the value are relative
/// to.
type OnValue<'a, T> = dyn for<'u> FnMut(UnitRef<'u, Reader>, AttributeValue<Reader>) -> Option<T> + 'a;

/// The parameters and the result of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The parameters, in their order. The first one of a C++ method is `this`.
    pub parameters: Vec<Parameter>,
    /// The kind of the result; `None` if the function returns nothing.
    pub result: Option<ValueKind>,
}

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The parameter's name; `None` if it has no name.
    pub name: Option<String>,
    /// The kind of the parameter's value.
    pub kind: ValueKind,
}

/// The kind of a value, which decides in which registers the value is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A whole number, a character, a truth value or an enumerator.
    Integer {
        /// The size in bytes: 1, 2, 4 or 8.
        size: u8,
        /// Whether the value can be negative.
        signed: bool,
    },
    /// An address.
    Pointer,
    /// A floating-point number.
    Float,
    /// A structure or something else.
    Other,
}

/// The maximum length of a chain of types: `typedef`, `const` and so on. Damaged DWARF may contain a cycle.
const MOST_TYPES: usize = 32;

impl Dwarf {
    /// Returns the signature of the function that starts at `address`, if DWARF describes it.
    pub fn signature(&self, address: u64) -> Option<Signature> {
        self.weigh(address).ok()?;
        let unit = self.context.find_dwarf_and_unit(address).skip_all_loads()?;
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs().ok()? {
            if entry.tag() == dw::DW_TAG_subprogram && starts_at(unit, entry, address) {
                return Some(signature(unit, &entry.clone()));
            }
        }
        None
    }
}

fn starts_at(unit: UnitRef<'_, Reader>, entry: &Entry, address: u64) -> bool {
    let Ok(mut ranges) = unit.die_ranges(entry) else { return false };
    std::iter::from_fn(|| ranges.next().ok().flatten()).any(|range| range.begin == address && range.end > address)
}

fn signature(unit: UnitRef<'_, Reader>, function: &Entry) -> Signature {
    let mut parameters = Vec::new();
    if let Ok(mut tree) = unit.entries_tree(Some(function.offset()))
        && let Ok(root) = tree.root()
    {
        let mut children = root.children();
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry();
            if entry.tag() == dw::DW_TAG_formal_parameter {
                let name = attribute(unit, entry, dw::DW_AT_name, MOST_TYPES, &mut |unit, value| {
                    Some(unit.attr_string(value).ok()?.to_string_lossy().ok()?.into_owned())
                });
                parameters.push(Parameter { name, kind: kind(unit, entry, MOST_TYPES).unwrap_or(ValueKind::Other) });
            }
        }
    }
    Signature { parameters, result: kind(unit, function, MOST_TYPES) }
}

/// Calls `work` with the value of an attribute of an entry. If the entry lacks the attribute, the attribute of its
/// origin is used: the entry for a function's code refers to the entry of the function's declaration.
fn attribute<T>(
    unit: UnitRef<'_, Reader>,
    entry: &Entry,
    name: gimli::DwAt,
    left: usize,
    work: &mut OnValue<'_, T>,
) -> Option<T> {
    if let Some(value) = entry.attr_value(name) {
        return work(unit, value);
    }
    let left = left.checked_sub(1)?;
    let origin =
        [dw::DW_AT_abstract_origin, dw::DW_AT_specification].into_iter().find_map(|at| entry.attr_value(at))?;
    follow(unit, origin, &mut |unit, entry| attribute(unit, entry, name, left, work))
}

/// Calls `work` with the entry that a reference points to. Entries in another file (`.gnu_debugaltlink`) are not found.
fn follow<T>(
    unit: UnitRef<'_, Reader>,
    reference: AttributeValue<Reader>,
    work: &mut dyn FnMut(UnitRef<'_, Reader>, &Entry) -> Option<T>,
) -> Option<T> {
    match reference {
        AttributeValue::UnitRef(offset) => work(unit, &unit.entry(offset).ok()?),
        AttributeValue::DebugInfoRef(offset) => {
            let mut headers = unit.dwarf.units();
            while let Some(header) = headers.next().ok()? {
                if let Some(offset) = offset.to_unit_offset(&header) {
                    let other = unit.dwarf.unit(header).ok()?;
                    let other = other.unit_ref(unit.dwarf);
                    return work(other, &other.entry(offset).ok()?);
                }
            }
            None
        }
        _ => None,
    }
}

/// Returns the kind of the entry's type; `None` if the entry has no type.
fn kind(unit: UnitRef<'_, Reader>, entry: &Entry, left: usize) -> Option<ValueKind> {
    let left = left.checked_sub(1)?;
    attribute(unit, entry, dw::DW_AT_type, left, &mut |unit, reference| {
        let found = follow(unit, reference, &mut |unit, named| {
            let size = || named.attr_value(dw::DW_AT_byte_size).and_then(|size| size.udata_value());
            let integer = |signed| match size() {
                Some(size @ (1 | 2 | 4 | 8)) => ValueKind::Integer { size: size as u8, signed },
                _ => ValueKind::Other,
            };
            Some(match named.tag() {
                dw::DW_TAG_typedef
                | dw::DW_TAG_const_type
                | dw::DW_TAG_volatile_type
                | dw::DW_TAG_restrict_type
                | dw::DW_TAG_atomic_type => kind(unit, named, left).unwrap_or(ValueKind::Other),
                dw::DW_TAG_pointer_type | dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type => {
                    ValueKind::Pointer
                }
                dw::DW_TAG_enumeration_type => integer(false),
                dw::DW_TAG_base_type => match named.attr_value(dw::DW_AT_encoding) {
                    Some(AttributeValue::Encoding(dw::DW_ATE_signed | dw::DW_ATE_signed_char)) => integer(true),
                    Some(AttributeValue::Encoding(
                        dw::DW_ATE_unsigned | dw::DW_ATE_unsigned_char | dw::DW_ATE_boolean | dw::DW_ATE_UTF,
                    )) => integer(false),
                    Some(AttributeValue::Encoding(dw::DW_ATE_float)) => ValueKind::Float,
                    _ => ValueKind::Other,
                },
                _ => ValueKind::Other,
            })
        });
        Some(found.unwrap_or(ValueKind::Other))
    })
}
