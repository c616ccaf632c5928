//! The facts about the running kernel that texts of events need: symbols, strings, constants and types. Each of these
//! is read at its first use, because most scripts need none of them, and reading takes time: kallsyms has 200,000
//! lines.

use std::{
    collections::HashMap,
    fs,
    sync::{Arc, Once, OnceLock},
};

use perf_prof_format::{
    record::Ksymbol,
    tracefs::{
        BitField, Btf, Enumerators, EventFormat, Kernel, KernelSymbol, PerfKernelSymbol, dso_of_symbol, kernel_facts,
        printk_formats,
    },
};
use perf_prof_system::{mutex::Mutex, output, tracefs::Tracefs};

use crate::symbol::{Extent, KernelSymbols, PerfSymbol, Symbol};

/// The facts about the running kernel.
pub struct RunningKernel {
    tracefs: Tracefs,
    symbols: Mutex<KernelSymbols>,
    /// Makes the message that the kernel hides its symbols appear only once, and not for each stack.
    hidden: Once,
    strings: OnceLock<HashMap<u64, Box<[u8]>>>,
    constants: OnceLock<Btf>,
    /// Types by struct name, only of structs that were looked up. The lookup of a new struct reads all of BTF. Keeping
    /// all structs would need as much memory as BTF itself.
    structs: Mutex<HashMap<String, Btf>>,
    hz: OnceLock<Option<u32>>,
    build_id: OnceLock<Option<Arc<[u8]>>>,
}

impl RunningKernel {
    /// Creates the interface to the running kernel. Reads nothing yet.
    pub fn new(tracefs: Tracefs) -> Self {
        Self {
            tracefs,
            symbols: Mutex::default(),
            hidden: Once::new(),
            strings: OnceLock::new(),
            constants: OnceLock::new(),
            structs: Mutex::default(),
            hz: OnceLock::new(),
            build_id: OnceLock::new(),
        }
    }

    fn with_struct<R>(&self, tag: &str, ask: impl Fn(&Btf) -> R) -> R {
        let mut structs = self.structs.lock();
        if !structs.contains_key(tag) {
            structs.insert(tag.to_owned(), read_btf(|name| name == tag));
        }
        ask(structs.entry(tag.to_owned()).or_default())
    }
}

impl Kernel for RunningKernel {
    fn symbol(&self, addr: u64) -> Option<KernelSymbol<'_>> {
        match self.symbols.lock().list(addr) {
            Ok(list) => {
                let Symbol { name, offset, size, module } = list.lookup(addr)?;
                let module = module.map(|module| module.to_owned().into());
                Some(KernelSymbol { name: name.to_owned().into(), offset, size, module })
            }
            Err(reason) => {
                self.hidden.call_once(|| output::say(format_args!("kernel addresses have no names: {reason}")));
                None
            }
        }
    }

    fn perf_symbol(&self, addr: u64) -> Option<PerfKernelSymbol<'_>> {
        let list = self.symbols.lock().list(addr).ok()?;
        let PerfSymbol { name, extent, module } = list.lookup_as_perf(addr)?;
        let module = module.map(|module| module.to_owned().into());
        let Extent { start, end, binding } = extent;
        Some(PerfKernelSymbol { name: name.to_owned().into(), start, end, binding, module })
    }

    fn perf_map(&self, addr: u64) -> Option<(u64, u64)> {
        let mut symbols = self.symbols.lock();
        let list = symbols.list(addr).ok()?;
        symbols.module_range(addr).or_else(|| list.perf_range())
    }

    fn build_id(&self, dso: &str) -> Option<Arc<[u8]>> {
        let read = || running_build_id().map(Arc::from);
        if dso == "[kernel.kallsyms]" { self.build_id.get_or_init(read).clone() } else { None }
    }

    fn symbol_changed(&self, _: &Ksymbol<'_>) {
        self.symbols.lock().mark_changed();
    }

    fn dso(&self, addr: u64, symbol: Option<&KernelSymbol<'_>>) -> Arc<str> {
        let module = if symbol.is_none() { self.symbols.lock().module(addr) } else { None };
        module.unwrap_or_else(|| dso_of_symbol(addr, symbol))
    }

    fn string(&self, addr: u64) -> Option<&[u8]> {
        let read = || {
            let text = self.tracefs.printk_formats();
            text.map(|text| printk_formats::parse(text.as_bytes())).unwrap_or_default()
        };
        self.strings.get_or_init(read).get(&addr).map(|text| &**text)
    }

    fn constant(&self, name: &str) -> Option<i64> {
        self.constants.get_or_init(|| parse_btf(Enumerators::Read, |_| false)).constant(name)
    }

    fn size_of(&self, type_name: &str) -> Option<u64> {
        let tag = type_name.split_whitespace().next_back()?;
        self.with_struct(tag, |btf| btf.size_of(type_name))
    }

    fn member(&self, tag: &str, member: &str) -> Option<BitField> {
        self.with_struct(tag, |btf| btf.member(tag, member))
    }

    fn hz(&self) -> Option<u32> {
        let learn = || {
            let (system, name) = ("writeback", "writeback_single_inode");
            let text = self.tracefs.format(system, name).ok()?;
            kernel_facts::hz(&EventFormat::parse(system, &text).ok()?)
        };
        *self.hz.get_or_init(learn)
    }
}

/// Reads the build id of the running kernel from /sys/kernel/notes.
pub fn running_build_id() -> Option<Vec<u8>> {
    build_id_in_notes(&fs::read("/sys/kernel/notes").ok()?).map(<[u8]>::to_vec)
}

/// Returns the build id in ELF notes: the description of the note with the name `GNU` and the type NT_GNU_BUILD_ID. A
/// note has three words of 4 bytes: the size of the name, the size of the description, the type. The name and the
/// description follow, each padded to a multiple of 4 bytes.
pub fn build_id_in_notes(mut notes: &[u8]) -> Option<&[u8]> {
    const NT_GNU_BUILD_ID: u32 = 3;
    loop {
        let word = |at: usize| notes.get(at..at + 4)?.first_chunk().map(|word| u32::from_ne_bytes(*word));
        let (name_size, size, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let name = notes.get(12..)?.get(..name_size)?;
        let rest = notes.get(12 + name_size.next_multiple_of(4)..)?;
        let description = rest.get(..size)?;
        if kind == NT_GNU_BUILD_ID && name == b"GNU\0" {
            return Some(description);
        }
        notes = rest.get(size.next_multiple_of(4)..)?;
    }
}

/// Reads the kernel's types, functions and variables with these names. Returns an empty [`Btf`] if the kernel has no BTF.
pub fn read_btf(wanted: impl Fn(&str) -> bool) -> Btf {
    parse_btf(Enumerators::Skipped, wanted)
}

fn parse_btf(enumerators: Enumerators, wanted: impl Fn(&str) -> bool) -> Btf {
    let bytes = fs::read("/sys/kernel/btf/vmlinux").ok();
    bytes.and_then(|bytes| Btf::parse(&bytes, enumerators, wanted)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(kind: u32, name: &[u8], content: &[u8]) -> Vec<u8> {
        let mut note: Vec<u8> =
            [name.len() as u32, content.len() as u32, kind].iter().flat_map(|word| word.to_ne_bytes()).collect();
        for part in [name, content] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        let notes = [note(0x100, b"Xen\0", b"abc"), note(3, b"GNU\0", &[7; 20]), note(1, b"Linux\0", &[0; 4])].concat();
        assert_eq!(build_id_in_notes(&notes), Some(&[7; 20][..]));
        (0..56).for_each(|cut| assert_eq!(build_id_in_notes(&notes[..cut]), None, "{cut}"));
        assert_eq!(build_id_in_notes(&note(3, b"GNU", &[])), None);
        assert_eq!(build_id_in_notes(&[0xff; 64]), None);
    }
}
