//! The running kernel's symbols, read again when something new may be there: modules and BPF programs come and go.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Kallsyms, Reason};

/// Reading takes 20 ms or so. It is not done more often than that, and less and less often while it does not help.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LAST_WAIT: Duration = Duration::from_secs(60);

/// The symbols of the kernel, as of late.
#[derive(Debug)]
pub struct KernelSymbols {
    path: PathBuf,
    list: Option<Result<Arc<Kallsyms>, Reason>>,
    read: Instant,
    wait: Duration,
    /// It was said to have changed since it was read.
    stale: bool,
}

impl Default for KernelSymbols {
    fn default() -> Self {
        Self::new("/proc/kallsyms")
    }
}

impl KernelSymbols {
    /// Nothing is read yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), list: None, read: Instant::now(), wait: FIRST_WAIT, stale: false }
    }

    /// The list to look an address up in: read again if it is not in the last one, or in the code of a BPF program,
    /// behind which another one may have been loaded since; within limits.
    pub fn list(&mut self, address: u64) -> Result<Arc<Kallsyms>, Reason> {
        let is_due = self.stale || self.read.elapsed() >= self.wait;
        if self.list.is_none() || (is_due && self.may_be_new(address)) {
            let before = self.name(address);
            self.list = Some(Kallsyms::read(&self.path).map(Arc::new));
            self.read = Instant::now();
            self.stale = false;
            self.wait = if self.name(address) == before { (2 * self.wait).min(LAST_WAIT) } else { FIRST_WAIT };
        }
        self.list.clone().unwrap_or(Err(Reason::NoSymbols))
    }

    /// The list has changed (PERF_RECORD_KSYMBOL): it is read again when an address asks for it.
    pub fn changed(&mut self) {
        self.stale = true;
    }

    fn may_be_new(&self, address: u64) -> bool {
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

    /// Once told of a change, it was read for every address without a name.
    #[test]
    fn a_change_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kallsyms");
        std::fs::write(&path, "ffffffff81000000 T _stext\nffffffff81000100 T _etext\n").unwrap();
        let mut symbols = KernelSymbols::new(&path);
        let list = |symbols: &mut KernelSymbols| symbols.list(0x10).unwrap();
        let first = list(&mut symbols);
        symbols.changed();
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
        // Not at once: it would be read for every address.
        assert_eq!(named(&mut symbols, 0xffffffffc0000110), old);
        symbols.changed();
        assert_eq!(named(&mut symbols, 0xffffffffc0000110), Some("bpf_prog_2_new [bpf]".to_owned()));
        assert_eq!(named(&mut symbols, 0xffffffff81000010), Some("_stext [kernel.kallsyms]".to_owned()));
    }
}
