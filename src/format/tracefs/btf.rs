//! Parser for the kernel's BTF (`/sys/kernel/btf/vmlinux`). Reads the values of enumerators, the sizes and members of structs
//! and unions, the numbers of functions, and the places of per-CPU variables.
//!
//! Print formats need BTF for enumerators and for bit-fields of a union (`role.level`). A print format contains an
//! enumerator's name if the kernel has not replaced the name by its value (`TRACE_DEFINE_ENUM`).
//! `include/uapi/linux/btf.h` defines the layout of BTF.

use std::collections::HashMap;

/// The position of a member in its struct or union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitField {
    /// The offset of the member from the start of the struct or union, in bits.
    pub offset: u32,
    /// The size of the bit-field in bits; 0 if the member is not a bit-field.
    pub size: u32,
}

/// The place of a per-CPU variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerCpuVariable {
    /// The offset from the start of each CPU's memory for per-CPU variables, in bytes. This memory starts at a multiple
    /// of the page size.
    pub offset: u32,
    /// The size of the variable in bytes.
    pub size: u32,
}

/// The parts of BTF that print formats and programs may need.
#[derive(Clone, Debug, Default)]
pub struct Btf {
    constants: HashMap<Box<str>, i64>,
    sizes: HashMap<Box<str>, u64>,
    members: HashMap<Box<str>, Vec<Member>>,
    functions: HashMap<Box<str>, u32>,
    per_cpu: HashMap<Box<str>, PerCpuVariable>,
}

/// Whether all enumerators are read. There are tens of thousands of enumerators, and reading them takes longer than
/// reading everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enumerators {
    /// All enumerators are read.
    Read,
    /// Enumerators are skipped.
    Skipped,
}

#[derive(Clone, Debug)]
struct Member {
    /// The name of the member. It is empty if the member is an anonymous struct or union. In C, the members of an
    /// anonymous struct belong to the struct or union that contains the anonymous struct.
    name: Box<str>,
    type_id: u32,
    at: BitField,
}

const MAGIC: u16 = 0xeb9f;
const KIND_INT: u32 = 1;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_ENUM64: u32 = 19;

/// The section of the kernel with the per-CPU variables.
const PER_CPU_SECTION: &str = ".data..percpu";

impl Btf {
    /// Parses BTF. Reads those structs, unions, functions and per-CPU variables for whose names `wanted` returns true.
    /// Returns `None` if the bytes are not BTF.
    pub fn parse(bytes: &[u8], enumerators: Enumerators, wanted: impl Fn(&str) -> bool) -> Option<Btf> {
        if u16::from_ne_bytes(*bytes.first_chunk()?) != MAGIC {
            return None;
        }
        let header = |at| word(bytes, at).map(|word| word as usize);
        let data = bytes.get(header(4)?..)?;
        let types = data.get(header(8)?..)?.get(..header(12)?)?;
        let strings = data.get(header(16)?..)?.get(..header(20)?)?;

        let mut btf = Btf::default();
        let mut anonymous: HashMap<u32, Vec<Member>> = HashMap::new();
        let (mut variables, mut per_cpu): (Vec<(u32, &str)>, &[u8]) = (Vec::new(), &[]);
        let (mut at, mut id) = (0, 0);
        while at < types.len() {
            id += 1;
            let (name, info, size) = (word(types, at)?, word(types, at + 4)?, word(types, at + 8)?);
            at += 12;
            let (kind, count, flag) = (info >> 24 & 0x1f, (info & 0xffff) as usize, info >> 31 == 1);
            let each = match kind {
                KIND_STRUCT | KIND_UNION | KIND_ENUM64 | KIND_DATASEC => 12,
                KIND_ENUM | KIND_FUNC_PROTO => 8,
                _ => 0,
            };
            let items = types.get(at..)?.get(..count * each)?;
            match kind {
                KIND_ENUM | KIND_ENUM64 if enumerators == Enumerators::Read => {
                    btf.enumerators(items, each, flag, strings)?;
                }
                KIND_FUNC => {
                    let name = string(strings, name)?;
                    if wanted(name) {
                        btf.functions.insert(name.into(), id);
                    }
                }
                KIND_VAR => {
                    let name = string(strings, name)?;
                    variables.extend(wanted(name).then_some((id, name)));
                }
                KIND_DATASEC if string(strings, name)? == PER_CPU_SECTION => per_cpu = items,
                KIND_STRUCT | KIND_UNION => {
                    let name = string(strings, name)?;
                    if name.is_empty() {
                        anonymous.insert(id, members(items, flag, strings)?);
                    } else if wanted(name) {
                        btf.members.insert(name.into(), members(items, flag, strings)?);
                        let keyword = if kind == KIND_STRUCT { "struct" } else { "union" };
                        btf.sizes.insert(format!("{keyword} {name}").into(), size.into());
                    }
                }
                _ => {}
            }
            at += count * each;
            at += match kind {
                KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
                KIND_ARRAY => 12,
                _ => 0,
            };
        }
        btf.flatten(&anonymous);
        btf.place(&variables, per_cpu)?;
        Some(btf)
    }

    /// Adds the places of variables. `variables` contains their ids and names, and `items` is the contents of the
    /// per-CPU section.
    fn place(&mut self, variables: &[(u32, &str)], items: &[u8]) -> Option<()> {
        for item in items.chunks_exact(12) {
            let (id, offset, size) = (word(item, 0)?, word(item, 4)?, word(item, 8)?);
            let named = variables.iter().find(|(variable, _)| *variable == id);
            self.per_cpu.extend(named.map(|(_, name)| (Box::from(*name), PerCpuVariable { offset, size })));
        }
        Some(())
    }

    fn enumerators(&mut self, items: &[u8], each: usize, signed: bool, strings: &[u8]) -> Option<()> {
        for item in items.chunks_exact(each) {
            let low = word(item, 4)?;
            let value = match (each, signed) {
                (8, true) => low as i32 as i64,
                (8, false) => low as i64,
                _ => (u64::from(low) | u64::from(word(item, 8)?) << 32) as i64,
            };
            self.constants.insert(string(strings, word(item, 0)?)?.into(), value);
        }
        Some(())
    }

    /// Adds the members of each anonymous struct or union to the type that contains it, because C code accesses them
    /// there.
    fn flatten(&mut self, anonymous: &HashMap<u32, Vec<Member>>) {
        for members in self.members.values_mut() {
            let mut at = 0;
            // C types cannot contain themselves, but types in damaged BTF can. The limit ends the loop for types that
            // contain themselves.
            while at < members.len() && members.len() < 10_000 {
                let outer = members[at].clone();
                if outer.name.is_empty() {
                    for inner in anonymous.get(&outer.type_id).into_iter().flatten() {
                        let offset = outer.at.offset.wrapping_add(inner.at.offset);
                        members.push(Member { at: BitField { offset, ..inner.at }, ..inner.clone() });
                    }
                }
                at += 1;
            }
        }
    }

    /// Returns the value of an enumerator.
    pub fn constant(&self, name: &str) -> Option<i64> {
        self.constants.get(name).copied()
    }

    /// Returns the size of a type in bytes. `type_name` is written as `struct x` or `union x`.
    pub fn size_of(&self, type_name: &str) -> Option<u64> {
        self.sizes.get(type_name).copied()
    }

    /// Returns the BTF id of a kernel function. A BPF program calls the function by this id.
    pub fn function(&self, name: &str) -> Option<u32> {
        self.functions.get(name).copied()
    }

    /// Returns the place of a per-CPU variable.
    pub fn per_cpu(&self, name: &str) -> Option<PerCpuVariable> {
        self.per_cpu.get(name).copied()
    }

    /// Returns the position of a member. `tag` is the name of its struct or union, without the keyword.
    pub fn member(&self, tag: &str, member: &str) -> Option<BitField> {
        self.members.get(tag)?.iter().find(|found| &*found.name == member).map(|found| found.at)
    }
}

fn members(items: &[u8], bit_fields: bool, strings: &[u8]) -> Option<Vec<Member>> {
    let member = |item: &[u8]| {
        let offset = word(item, 8)?;
        let at = if bit_fields {
            BitField { offset: offset & 0xff_ffff, size: offset >> 24 }
        } else {
            BitField { offset, size: 0 }
        };
        Some(Member { name: string(strings, word(item, 0)?)?.into(), type_id: word(item, 4)?, at })
    };
    items.chunks_exact(12).map(member).collect()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

fn string(strings: &[u8], at: u32) -> Option<&str> {
    let from = strings.get(at as usize..)?;
    std::str::from_utf8(super::field::up_to_nul(from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `enum { A = 1, B = -1 }; enum : u64 { C = 1 << 40 }; union role { struct { int level:4, access:3; }; int word; };`
    /// a function `next`, and the variables `word` and `B`, of which `B` is a per-CPU variable.
    fn btf() -> Vec<u8> {
        let strings = b"\0A\0B\0C\0role\0level\0access\0word\0next\0.data\0.data..percpu\0";
        let types: &[u32] = &[
            // KIND_INT has one more word.
            &[0, KIND_INT << 24, 4, 32][..],
            &[0, 1 << 31 | KIND_ENUM << 24 | 2, 4, 1, 1, 3, u32::MAX],
            &[0, KIND_ENUM64 << 24 | 1, 8, 5, 0, 1 << 8],
            &[0, 1 << 31 | KIND_STRUCT << 24 | 2, 4, 12, 1, 4 << 24, 18, 1, 3 << 24 | 4],
            &[7, KIND_UNION << 24 | 2, 4, 0, 4, 0, 25, 1, 0],
            &[30, KIND_FUNC << 24, 0],
            // KIND_VAR has one more word.
            &[25, KIND_VAR << 24, 1, 0],
            &[35, KIND_DATASEC << 24 | 1, 8, 7, 0, 4],
            &[41, KIND_DATASEC << 24 | 2, 72, 1, 8, 4, 10, 64, 8],
            &[3, KIND_VAR << 24, 1, 1],
        ]
        .concat();
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for word in [24, 0, types.len() as u32 * 4, types.len() as u32 * 4, strings.len() as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(types.iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn enumerators_and_members_are_found() {
        let bytes = btf();
        let btf = Btf::parse(&bytes, Enumerators::Read, |name| ["role", "next", "word", "B"].contains(&name)).unwrap();
        assert_eq!(["A", "B", "C", "D"].map(|name| btf.constant(name)), [Some(1), Some(-1), Some(1 << 40), None]);
        assert_eq!(btf.size_of("union role"), Some(4));
        assert_eq!(btf.member("role", "access"), Some(BitField { offset: 4, size: 3 }));
        assert_eq!(btf.member("role", "word"), Some(BitField { offset: 0, size: 0 }));
        assert_eq!(btf.member("role", "other"), None);
        assert_eq!([btf.function("next"), btf.function("role")], [Some(6), None]);
        assert_eq!(Btf::parse(&bytes, Enumerators::Skipped, |_| true).unwrap().constant("A"), None);
        // BTF may name a variable after its section.
        let place = PerCpuVariable { offset: 64, size: 8 };
        assert_eq!(["B", "word", "A"].map(|name| btf.per_cpu(name)), [Some(place), None, None]);
    }

    #[test]
    fn cut_off_or_other_bytes_are_no_btf() {
        let bytes = btf();
        for end in 0..bytes.len() {
            assert!(Btf::parse(&bytes[..end], Enumerators::Read, |_| true).is_none(), "{end}");
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0xff;
            let _ = Btf::parse(&bytes, Enumerators::Read, |_| true);
        }
    }
}
