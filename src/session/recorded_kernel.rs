//! What rendering asks of the kernel that was recorded. What is not in the recording is taken from the running kernel only
//! if that is the same one: a name that is wrong is worse than none.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    ops::Range,
    path::PathBuf,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use super::names::RunningKernel;
use crate::{
    perfdata::{KernelMapping, Recording},
    record::{Ksymbol, KsymbolKind},
    symbol::{Kallsyms, Recorded, Symbol},
    sys::{output, tracefs::Tracefs},
    tracefs::{BitField, Kernel, KernelSymbol, printk_formats},
};

/// The recorded kernel.
pub struct RecordedKernel {
    /// Where its list of symbols is.
    symbols: Symbols,
    list: OnceLock<Option<Moved>>,
    /// Code that was made while it ran, by where it begins.
    made: Mutex<BTreeMap<u64, Made>>,
    strings: HashMap<u64, Box<[u8]>>,
    /// The running kernel, if it is the same.
    running: Option<RunningKernel>,
}

/// Code that was made while the kernel ran: BPF programs, trampolines.
struct Made {
    /// Where it ends.
    end: u64,
    name: Box<str>,
    /// What it is shown to be part of.
    module: Option<&'static str>,
}

/// Where names of addresses come from.
enum Symbols {
    /// The recording.
    Text(Vec<u8>),
    /// A list in a file, made when the kernel may have been elsewhere.
    File(PathBuf, KernelMapping),
    /// Nowhere, because.
    None(String),
}

/// A list of symbols of a kernel that may have been elsewhere.
struct Moved {
    list: Kallsyms,
    from: From,
}

/// Where a kernel was, compared with its list.
enum From {
    /// There.
    There,
    /// So much above. Modules and what else is not part of it were not moved along with it.
    Elsewhere {
        /// To be taken from its addresses.
        shift: u64,
        /// Its code.
        code: Range<u64>,
    },
}

impl RecordedKernel {
    /// The kernel of a recording.
    pub fn new(recording: &Recording, recorded: &Recorded) -> Self {
        let tracing = recording.features.tracing_data.as_ref();
        let strings = tracing.map(|tracing| printk_formats::parse(&tracing.printk_formats)).unwrap_or_default();
        let listed = recording.features.build_ids.iter().find(|id| id.path.starts_with("[kernel.kallsyms]"));
        let mapped = recording.kernel.as_ref();
        let build_id = listed.map(|id| &id.id).or(mapped.and_then(|kernel| kernel.build_id.as_ref()));
        let is_running = build_id.is_some_and(|id| running_build_id().as_ref() == Some(id));
        let symbols = match (tracing.map(|tracing| &tracing.kallsyms).filter(|text| !text.is_empty()), build_id) {
            (Some(text), _) => Symbols::Text(text.clone()),
            (None, None) => Symbols::None(
                "the recording has no build id of its kernel (`perf record` with --buildid-mmap tells it in pipes too)"
                    .to_owned(),
            ),
            (None, Some(id)) => {
                let list = if is_running { Some("/proc/kallsyms".into()) } else { recorded.kallsyms(id) };
                match (list, mapped) {
                    (Some(list), Some(kernel)) => Symbols::File(list, kernel.clone()),
                    (Some(_), None) => Symbols::None("the recording does not say where its kernel was".to_owned()),
                    (None, _) => {
                        Symbols::None("it was another kernel, and perf's cache (~/.debug) has no list of it".to_owned())
                    }
                }
            }
        };
        let running = Tracefs::find().ok().filter(|_| is_running).map(RunningKernel::new);
        Self { symbols, list: OnceLock::new(), made: Mutex::default(), strings, running }
    }

    /// Only those who hold the interpreter's lock come here, so nobody waits.
    fn made(&self) -> MutexGuard<'_, BTreeMap<u64, Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> Option<Moved> {
        let list = match &self.symbols {
            Symbols::Text(text) => {
                let list = Kallsyms::parse(&String::from_utf8_lossy(text)).map_err(|reason| reason.to_string());
                list.map(|list| Moved { list, from: From::There })
            }
            Symbols::File(path, kernel) => {
                let list = Kallsyms::read(path).map_err(|reason| reason.to_string());
                list.and_then(|list| Moved::new(list, kernel))
            }
            Symbols::None(why) => Err(why.clone()),
        };
        list.map_err(|why| output::say(format_args!("kernel addresses have no names: {why}"))).ok()
    }
}

/// The module that the kernel's list has BPF programs in.
const BPF: &str = "bpf";

/// What the kernel's list says that code which was made while it ran is part of (`ftrace_get_trampoline_kallsym()` in
/// kernel/trace/ftrace.c, `kprobe_cache_get_kallsym()` in kernel/kprobes.c).
fn module(kind: KsymbolKind, name: &str) -> Option<&'static str> {
    match (kind, name) {
        (KsymbolKind::Bpf, _) => Some(BPF),
        (KsymbolKind::OutOfLine, "ftrace_trampoline") => Some("__builtin__ftrace"),
        (KsymbolKind::OutOfLine, "kprobe_insn_page" | "kprobe_optinsn_page") => Some("__builtin__kprobes"),
        // The kernel's own, as far as anybody knows.
        (KsymbolKind::OutOfLine | KsymbolKind::Other, _) => None,
    }
}

impl Moved {
    fn new(list: Kallsyms, kernel: &KernelMapping) -> Result<Moved, String> {
        let KernelMapping { start, end, symbol, address, .. } = kernel;
        let listed = list.bound(symbol).ok_or_else(|| format!("the kernel's list has no `{symbol}`"))?;
        let from = match address.wrapping_sub(listed) {
            0 => From::There,
            shift => From::Elsewhere { shift, code: *start..*end },
        };
        Ok(Moved { list, from })
    }

    fn lookup(&self, addr: u64) -> Option<Symbol<'_>> {
        match &self.from {
            From::There => self.list.lookup(addr),
            From::Elsewhere { shift, code } => {
                let found = self.list.lookup(addr.wrapping_sub(*shift)).filter(|_| code.contains(&addr));
                found.filter(|symbol| symbol.module.is_none())
            }
        }
    }
}

impl Kernel for RecordedKernel {
    fn symbol(&self, addr: u64) -> Option<KernelSymbol<'_>> {
        if let Some((&start, Made { end, name, module })) = self.made().range(..=addr).next_back()
            && addr < *end
        {
            let (name, module) = (name.to_string().into(), module.map(Into::into));
            return Some(KernelSymbol { name, offset: addr - start, size: end - start, module });
        }
        // Of a list of another time, what was loaded then is another program.
        let found = self.list.get_or_init(|| self.read()).as_ref()?.lookup(addr);
        let found = found.filter(|found| found.module != Some(BPF) || matches!(self.symbols, Symbols::Text(_)))?;
        let (name, module) = (found.name.into(), found.module.map(Into::into));
        Some(KernelSymbol { name, offset: found.offset, size: found.size, module })
    }

    fn symbol_changed(&self, symbol: &Ksymbol<'_>) {
        let &Ksymbol { addr, len, kind, removed, name } = symbol;
        let mut made = self.made();
        if removed {
            made.remove(&addr);
        } else {
            let name: Box<str> = String::from_utf8_lossy(name).into();
            let module = module(kind, &name);
            made.insert(addr, Made { end: addr.saturating_add(len.into()), name, module });
        }
    }

    fn string(&self, addr: u64) -> Option<&[u8]> {
        self.strings.get(&addr).map(|text| &**text)
    }

    fn constant(&self, name: &str) -> Option<i64> {
        self.running.as_ref()?.constant(name)
    }

    fn size_of(&self, type_name: &str) -> Option<u64> {
        self.running.as_ref()?.size_of(type_name)
    }

    fn member(&self, tag: &str, member: &str) -> Option<BitField> {
        self.running.as_ref()?.member(tag, member)
    }

    fn hz(&self) -> Option<u32> {
        self.running.as_ref()?.hz()
    }
}

/// What the running kernel was built from: a note in /sys/kernel/notes.
fn running_build_id() -> Option<Vec<u8>> {
    build_id(&fs::read("/sys/kernel/notes").ok()?)
}

/// The build id among ELF notes: sizes of name and description, kind, then both, each filled up to four bytes.
fn build_id(mut notes: &[u8]) -> Option<Vec<u8>> {
    const NT_GNU_BUILD_ID: u32 = 3;
    loop {
        let (head, rest) = notes.split_at_checked(12)?;
        let word = |at: usize| head[at..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
        let filled = |size: u32| (size as usize).next_multiple_of(4);
        let (name, rest) = rest.split_at_checked(filled(word(0)))?;
        let description = rest.get(..word(4) as usize)?;
        if word(8) == NT_GNU_BUILD_ID && name == b"GNU\0" {
            return Some(description.to_vec());
        }
        notes = rest.get(filled(word(4))..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It had no names at all.
    #[test]
    fn a_kernel_that_was_elsewhere_has_the_names_of_its_code() {
        const LIST: &str = "ffffffff81000000 T _text\nffffffff81000000 T _stext\nffffffff81000100 t f\n\
                            ffffffff81000200 T _etext\nffffffffa1000000 t g\t[m]\n";
        let names = |address: u64| {
            let (start, end) = (address, address + 0x200);
            let kernel = KernelMapping { start, end, symbol: "_text".into(), address, build_id: None };
            let moved = Moved::new(Kallsyms::parse(LIST).unwrap(), &kernel).unwrap();
            let name = |addr| moved.lookup(addr).map(|symbol| (symbol.name.to_owned(), symbol.offset));
            [address + 0x108, address + 0x300, 0xffffffffa1000004, 0xffffffffa1000004 + (address - 0xffffffff81000000)]
                .map(name)
        };
        let named = |name: &str, offset| Some((name.to_owned(), offset));
        assert_eq!(names(0xffffffff81000000), [named("f", 8), None, named("g", 4), named("g", 4)]);
        assert_eq!(names(0xffffffff91000000), [named("f", 8), None, None, None]);
        let unlisted = KernelMapping { start: 0, end: 1, symbol: "_x".into(), address: 0, build_id: None };
        assert!(Moved::new(Kallsyms::parse(LIST).unwrap(), &unlisted).is_err());
    }

    /// All were of the module `bpf`.
    #[test]
    fn code_that_was_made_is_part_of_what_made_it() {
        let (symbols, list, made) = (Symbols::Text(Vec::new()), OnceLock::from(None), Mutex::default());
        let kernel = RecordedKernel { symbols, list, made, strings: HashMap::new(), running: None };
        let shown = |addr: u64, kind: KsymbolKind, name: &str| {
            let made = Ksymbol { addr, len: 0x10, kind, removed: false, name: name.as_bytes() };
            kernel.symbol_changed(&made);
            let found = kernel.symbol(addr + 8).map(|found| (found.name.into_owned(), found.offset, found.module));
            let found = found.map(|(name, offset, module)| (name, offset, module.map(|module| module.into_owned())));
            kernel.symbol_changed(&Ksymbol { removed: true, ..made });
            assert!(kernel.symbol(addr + 8).is_none());
            found
        };
        for (kind, name, module) in [
            (KsymbolKind::Bpf, "bpf_prog_1_x", Some("bpf")),
            (KsymbolKind::OutOfLine, "ftrace_trampoline", Some("__builtin__ftrace")),
            (KsymbolKind::OutOfLine, "kprobe_optinsn_page", Some("__builtin__kprobes")),
            (KsymbolKind::OutOfLine, "another", None),
            (KsymbolKind::Other, "newer", None),
        ] {
            let expected = (name.to_owned(), 8, module.map(str::to_owned));
            assert_eq!(shown(0xffffffffc0000000, kind, name), Some(expected));
        }
    }

    #[test]
    fn notes() {
        let note = |kind: u32, text: &[u8]| {
            let mut note = [4u32, text.len() as u32, kind].map(u32::to_ne_bytes).concat();
            note.extend([b"GNU\0", text].concat());
            note.resize(note.len().next_multiple_of(4), 0);
            note
        };
        let notes = [note(1, b"x"), note(3, b"build")].concat();
        assert_eq!(build_id(&notes), Some(b"build".to_vec()));
        (0..notes.len() - 3).for_each(|cut| assert_eq!(build_id(&notes[..cut]), None, "{cut}"));
    }
}
