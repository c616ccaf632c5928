//! What rendering asks of the running kernel, as a port. Knows nothing of where the answers come from.

use std::borrow::Cow;

use super::btf::BitField;
use crate::record::Ksymbol;

/// A kernel symbol that an address belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSymbol<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// How far into the symbol the address is.
    pub offset: u64,
    /// The symbol's size as `kallsyms_lookup` tells it: up to the next symbol of another address.
    pub size: u64,
    /// The module that it is part of.
    pub module: Option<Cow<'a, str>>,
}

/// Answers about the kernel that wrote the events. Each has a "not known"; the text then shows `?` in that place, or
/// the plain number where the kernel has a notation for that (an address without a symbol).
pub trait Kernel {
    /// The symbol at an address (`/proc/kallsyms`).
    fn symbol(&self, addr: u64) -> Option<KernelSymbol<'_>>;

    /// Code came or went: a BPF program was loaded or unloaded.
    fn symbol_changed(&self, _symbol: &Ksymbol<'_>) {}

    /// The string at an address that tracefs' `printk_formats` lists.
    fn string(&self, addr: u64) -> Option<&[u8]>;

    /// The value of an enumerator that print formats still name (BTF).
    fn constant(&self, _name: &str) -> Option<i64> {
        None
    }

    /// The value of a variable like `vmemmap_base`.
    fn variable(&self, _name: &str) -> Option<u64> {
        None
    }

    /// The size of a type, by its name as C writes it: `struct page` (BTF).
    fn size_of(&self, _type_name: &str) -> Option<u64> {
        None
    }

    /// Where a member lies in a struct or union, by the tag alone: `kvm_mmu_page_role`, `level` (BTF).
    fn member(&self, _tag: &str, _member: &str) -> Option<BitField> {
        None
    }

    /// Timer ticks per second (CONFIG_HZ).
    fn hz(&self) -> Option<u32> {
        None
    }
}

/// A kernel of which nothing is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoKernel;

impl Kernel for NoKernel {
    fn symbol(&self, _addr: u64) -> Option<KernelSymbol<'_>> {
        None
    }

    fn string(&self, _addr: u64) -> Option<&[u8]> {
        None
    }
}
