//! The running kernel as perf-prof reads it, and the one variable that user space cannot read, learnt from the text.

use perf_prof::{
    session::RunningKernel,
    sys::tracefs::{Tracefs, TracefsError},
    tracefs::{BitField, Kernel, KernelSymbol, learn},
};

pub struct Machine {
    kernel: RunningKernel,
    vmemmap_base: Option<u64>,
}

impl Machine {
    pub fn read() -> Result<Machine, TracefsError> {
        Ok(Machine { kernel: RunningKernel::new(Tracefs::find()?), vmemmap_base: None })
    }

    /// Finds the variable's value in the first text that gives a page both as address and as number. All other events
    /// that show a page must agree.
    pub fn learn_vmemmap_base(&mut self, text: &str) {
        let Some(struct_page) = self.kernel.size_of("struct page") else { return };
        let mut pages = text.lines().filter(|line| line.starts_with("mm_page_"));
        let found = pages.find_map(|line| learn::vmemmap_base(line, struct_page));
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
