//! The running kernel as perf-prof reads it, and the variable `vmemmap_base`, which user space cannot read. Its value
//! is computed from text that the kernel printed.

use perf_prof_format::tracefs::{BitField, Kernel, KernelSymbol};
use perf_prof_symbols::running_kernel::RunningKernel;
use perf_prof_system::tracefs::{Tracefs, TracefsError};

pub struct Machine {
    kernel: RunningKernel,
    vmemmap_base: Option<u64>,
}

impl Machine {
    pub fn read() -> Result<Machine, TracefsError> {
        Ok(Machine { kernel: RunningKernel::new(Tracefs::find()?), vmemmap_base: None })
    }

    /// Computes the variable from the first line that shows a page both as address and as number. The value must then
    /// be right for all other events with pages.
    pub fn learn_vmemmap_base(&mut self, text: &str) {
        let Some(struct_page) = self.kernel.size_of("struct page") else { return };
        let mut pages = text.lines().filter(|line| line.starts_with("mm_page_"));
        let found = pages.find_map(|line| vmemmap_base(line, struct_page));
        self.vmemmap_base = self.vmemmap_base.or(found);
    }
}

impl Kernel for Machine {
    fn symbol(&self, addr: u64) -> Option<KernelSymbol<'_>> {
        self.kernel.symbol(addr)
    }

    fn string(&self, addr: u64) -> Option<&[u8]> {
        self.kernel.string(addr)
    }

    fn constant(&self, name: &str) -> Option<i64> {
        self.kernel.constant(name)
    }

    fn variable(&self, name: &str) -> Option<u64> {
        if name == "vmemmap_base" { self.vmemmap_base } else { None }
    }

    fn size_of(&self, type_name: &str) -> Option<u64> {
        self.kernel.size_of(type_name)
    }

    fn member(&self, tag: &str, member: &str) -> Option<BitField> {
        self.kernel.member(tag, member)
    }

    fn hz(&self) -> Option<u32> {
        self.kernel.hz()
    }
}

/// Returns the kernel's `vmemmap_base`. It is computed from the kernel's text of a `kmem` event that shows a page both
/// by address and by number (`page=ffffea00041e49c0 pfn=0x107927`). `struct_page` is the size of `struct page`.
fn vmemmap_base(line: &str, struct_page: u64) -> Option<u64> {
    let hex = |key: &str| {
        let digits = line.split_once(key)?.1.split_ascii_whitespace().next()?;
        u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok()
    };
    let (page, number) = (hex("page=")?, hex("pfn=")?);
    // Address 0 means no page, so the number has no meaning.
    if page == 0 { None } else { page.checked_sub(number.checked_mul(struct_page)?) }
}

#[test]
fn vmemmap_base_is_computed_from_a_page() {
    let line = "mm_page_free: page=ffffea00041e49c0 pfn=0x107927 order=0";
    assert_eq!(vmemmap_base(line, 64), Some(0xffff_ea00_0000_0000));
    assert_eq!(vmemmap_base("mm_page_alloc: page=0000000000000000 pfn=0x0 order=0", 64), None);
    assert_eq!(vmemmap_base("page=x pfn=y", 64), None);
}
