//! The running kernel's symbols, from a list that is read again when it may contain new symbols. Modules and BPF
//! programs are loaded and unloaded at any time.

use std::{
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Kallsyms, KernelCode, Reason};

/// The minimum and the maximum time between two reads of the list. The time doubles after each read that finds no new
/// name. A read takes about 20 ms.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LAST_WAIT: Duration = Duration::from_secs(60);

/// The symbols of the kernel, as of the last read.
#[derive(Debug)]
pub struct KernelSymbols {
    path: PathBuf,
    /// The loaded modules, as of the last read. Some code of modules has no symbol, so only the module's name is known.
    modules: KernelCode,
    list: Option<Result<Arc<Kallsyms>, Reason>>,
    read: Instant,
    wait: Duration,
    /// Whether a change of the list was reported after the last read.
    stale: bool,
}

impl Default for KernelSymbols {
    fn default() -> Self {
        Self::new("/proc/kallsyms")
    }
}

impl KernelSymbols {
    /// Creates a list that has not been read yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let modules = KernelCode::default();
        Self { path: path.into(), modules, list: None, read: Instant::now(), wait: FIRST_WAIT, stale: false }
    }

    /// Returns the list for a lookup of `address`. Reads the list again if `address` has no symbol or is in a BPF
    /// program, but only after a wait between `FIRST_WAIT` and `LAST_WAIT`. The symbol of a BPF program may be wrong:
    /// since the last read, another program may have been loaded right after it.
    pub fn list(&mut self, address: u64) -> Result<Arc<Kallsyms>, Reason> {
        let is_due = self.stale || self.read.elapsed() >= self.wait;
        if self.list.is_none() || (is_due && self.may_have_new_name(address)) {
            let before = self.name(address);
            self.list = Some(Kallsyms::read(&self.path).map(Arc::new));
            self.modules = KernelCode::of_loaded_modules(&fs::read_to_string("/proc/modules").unwrap_or_default());
            self.read = Instant::now();
            self.stale = false;
            self.wait = if self.name(address) == before { (2 * self.wait).min(LAST_WAIT) } else { FIRST_WAIT };
        }
        self.list.clone().unwrap_or(Err(Reason::NoSymbols))
    }

    /// Returns the name of the loaded module that contains an address, in brackets. Modules that were loaded after the last
    /// read of the list are not known.
    pub fn module(&self, address: u64) -> Option<Arc<str>> {
        self.modules.module(address).map(|_| self.modules.dso(address, None))
    }

    /// Returns the addresses of the loaded module that contains an address. Modules that were loaded after the last read of the
    /// list are not known.
    pub fn module_range(&self, address: u64) -> Option<(u64, u64)> {
        self.modules.module_range(address)
    }

    /// Notes that the list has changed (PERF_RECORD_KSYMBOL). The next lookup of an address that may have a new name
    /// reads the list again.
    pub fn mark_changed(&mut self) {
        self.stale = true;
    }

    fn may_have_new_name(&self, address: u64) -> bool {
        let Some(Ok(list)) = &self.list else { return false };
        list.lookup(address).is_none_or(|symbol| symbol.module == Some("bpf"))
    }

    fn name(&self, address: u64) -> Option<String> {
        Some(self.list.as_ref()?.as_ref().ok()?.lookup(address)?.name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reported change causes one read, and not a read for each address without a name.
    #[test]
    fn a_change_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kallsyms");
        std::fs::write(&path, "ffffffff81000000 T _stext\nffffffff81000100 T _etext\n").unwrap();
        let mut symbols = KernelSymbols::new(&path);
        let list = |symbols: &mut KernelSymbols| symbols.list(0x10).unwrap();
        let first = list(&mut symbols);
        symbols.mark_changed();
        let second = list(&mut symbols);
        assert!(!Arc::ptr_eq(&first, &second));
        assert!((0..3).all(|_| Arc::ptr_eq(&second, &list(&mut symbols))));
    }

    #[test]
    fn a_bpf_program_that_was_loaded_later_has_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kallsyms");
        let first = "ffffffff81000000 T _stext\nffffffff81000100 T _etext\nffffffffc0000000 t bpf_prog_1_old\t[bpf]\n";
        std::fs::write(&path, first).unwrap();
        let mut symbols = KernelSymbols::new(&path);
        let named = |symbols: &mut KernelSymbols, address| {
            let list = symbols.list(address).unwrap();
            list.lookup(address).map(|found| format!("{} {}", found.name, found.dso()))
        };
        let old = Some("bpf_prog_1_old [bpf]".to_owned());
        assert_eq!(named(&mut symbols, 0xffffffffc0000010), old);
        std::fs::write(&path, format!("{first}ffffffffc0000100 t bpf_prog_2_new\t[bpf]\n")).unwrap();
        // The list is not read again at once. Otherwise each address without a name would cause a read.
        assert_eq!(named(&mut symbols, 0xffffffffc0000110), old);
        symbols.mark_changed();
        assert_eq!(named(&mut symbols, 0xffffffffc0000110), Some("bpf_prog_2_new [bpf]".to_owned()));
        assert_eq!(named(&mut symbols, 0xffffffff81000010), Some("_stext [kernel.kallsyms]".to_owned()));
    }
}
