//! The interface for facts about the kernel that are needed to write the text of an event.

use std::{borrow::Cow, sync::Arc};

use super::btf::BitField;
use crate::record::{Ksymbol, Mmap2};

/// A kernel symbol that an address belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSymbol<'a> {
    /// The name of the symbol.
    pub name: Cow<'a, str>,
    /// The offset of the address from the symbol's start, in bytes.
    pub offset: u64,
    /// The size of the symbol in bytes, as `kallsyms_lookup` reports it: up to the next symbol with a different
    /// address.
    pub size: u64,
    /// The module that contains the symbol, or `None` if the symbol belongs to the kernel itself.
    pub module: Option<Cow<'a, str>>,
}

/// A kernel symbol as perf chooses it. Its name and its end may differ from those of [`KernelSymbol`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfKernelSymbol<'a> {
    /// The name of the symbol.
    pub name: Cow<'a, str>,
    /// The first address of the symbol.
    pub start: u64,
    /// The address after the last address of the symbol.
    pub end: u64,
    /// The binding of the symbol, as a number of ELF files: 0 for local, 1 for global, 2 for weak symbols.
    pub binding: u8,
    /// The module that contains the symbol, or `None` if the symbol belongs to the kernel itself.
    pub module: Option<Cow<'a, str>>,
}

/// Facts about the kernel that wrote the events. If a fact is not known, the method returns `None`, and the text of the
/// event contains a `?`. For an address without a symbol, the text contains the plain number, as in the kernel's own
/// text.
pub trait Kernel {
    /// Returns the symbol that contains an address (`/proc/kallsyms`).
    fn symbol(&self, addr: u64) -> Option<KernelSymbol<'_>>;

    /// Returns the symbol that contains an address, as perf chooses it.
    fn perf_symbol(&self, addr: u64) -> Option<PerfKernelSymbol<'_>> {
        let KernelSymbol { name, offset, size, module } = self.symbol(addr)?;
        let start = addr.wrapping_sub(offset);
        Some(PerfKernelSymbol { name, start, end: start.saturating_add(size), binding: 1, module })
    }

    /// Returns the range of the kernel's own code, or of the module that contains an address, as perf computes it: the
    /// first address, and the address after the last one.
    fn perf_map(&self, _addr: u64) -> Option<(u64, u64)> {
        None
    }

    /// Returns the build id of the kernel or of a module, by the name that [`Kernel::dso`] returns.
    fn build_id(&self, _dso: &str) -> Option<Arc<[u8]>> {
        None
    }

    /// Reports that kernel code was added or removed: for example, a BPF program was loaded or unloaded.
    fn symbol_changed(&self, _symbol: &Ksymbol<'_>) {}

    /// Reports the address range of the kernel's own code or of a module. Recordings contain such mappings.
    fn code_mapped(&self, _mapping: &Mmap2<'_>) {}

    /// Returns the name of the code at an address, as perf shows it: `[kernel.kallsyms]`, `[ext4]`, the path of a
    /// module, or `[unknown]`. `symbol` is the symbol at the address.
    fn dso(&self, addr: u64, symbol: Option<&KernelSymbol<'_>>) -> Arc<str> {
        dso_of_symbol(addr, symbol)
    }

    /// Returns the string at an address that is listed in `printk_formats` of tracefs.
    fn string(&self, addr: u64) -> Option<&[u8]>;

    /// Returns the value of an enumerator (from BTF). Needed if a print format contains the name of the enumerator
    /// instead of its value.
    fn constant(&self, _name: &str) -> Option<i64> {
        None
    }

    /// Returns the value of a kernel variable, for example `vmemmap_base`.
    fn variable(&self, _name: &str) -> Option<u64> {
        None
    }

    /// Returns the size of a type in bytes (from BTF). The name is written as in C, for example `struct page`.
    fn size_of(&self, _type_name: &str) -> Option<u64> {
        None
    }

    /// Returns the position of a member in a struct or union (from BTF). `_tag` is the name of the struct or union
    /// without the keyword: for example, the tag `kvm_mmu_page_role` and the member `level`.
    fn member(&self, _tag: &str, _member: &str) -> Option<BitField> {
        None
    }

    /// Returns the number of timer ticks per second (CONFIG_HZ).
    fn hz(&self) -> Option<u32> {
        None
    }
}

/// Returns the name of the code at an address, given only its symbol.
pub fn dso_of_symbol(addr: u64, symbol: Option<&KernelSymbol<'_>>) -> Arc<str> {
    match symbol.map(|symbol| symbol.module.as_deref()) {
        Some(Some(module)) => format!("[{module}]").into(),
        // On all 64-bit machines, the addresses of the kernel have their top bit set.
        None if addr >> 63 == 0 => "[unknown]".into(),
        Some(None) | None => "[kernel.kallsyms]".into(),
    }
}

/// A kernel about which nothing is known.
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
