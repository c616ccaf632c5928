//! Names of the running kernel's addresses, read when the first is asked for.

use std::{collections::HashMap, sync::OnceLock};

use crate::{
    sys::tracefs::Tracefs,
    tracefs::{Kernel, KernelSymbol, printk_formats},
};

/// The running kernel: symbols from kallsyms, strings from tracefs' `printk_formats`.
pub struct RunningKernel {
    tracefs: Tracefs,
    strings: OnceLock<HashMap<u64, Box<[u8]>>>,
}

impl RunningKernel {
    /// Nothing is read yet: most scripts never ask, and kallsyms has 200,000 lines.
    pub fn new(tracefs: Tracefs) -> Self {
        Self { tracefs, strings: OnceLock::new() }
    }
}

impl Kernel for RunningKernel {
    fn symbol(&self, _addr: u64) -> Option<KernelSymbol<'_>> {
        None
    }

    fn string(&self, addr: u64) -> Option<&[u8]> {
        let read =
            || self.tracefs.printk_formats().map(|text| printk_formats::parse(text.as_bytes())).unwrap_or_default();
        self.strings.get_or_init(read).get(&addr).map(|text| &**text)
    }
}
