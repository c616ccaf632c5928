//! The facts about the recorded kernel that rendering needs: symbols, strings, constants and types. Missing facts come from
//! the running kernel, but only if that kernel is the same build, because a wrong name is worse than no name.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use perf_prof_format::{
    abi::{PERF_RECORD_MISC_CPUMODE_MASK, PERF_RECORD_MISC_KERNEL},
    record::{Ksymbol, KsymbolKind, Mmap2},
    tracefs::{BitField, Kernel, KernelSymbol, PerfKernelSymbol, printk_formats},
};
use perf_prof_recordings::{BuildId, KernelMapping, Recording};
use perf_prof_symbols::{
    running_kernel::{RunningKernel, running_build_id},
    symbol::{Extent, Kallsyms, KernelCode, PerfSymbol, RecordedBinaries, Symbol, module_name},
};
use perf_prof_system::{mutex::Mutex, output, tracefs::Tracefs};

/// The recorded kernel.
pub struct RecordedKernel {
    /// The source of the kernel's list of symbols.
    symbols: Symbols,
    list: OnceLock<Option<ShiftedSymbols>>,
    /// Code that was generated while the kernel ran, by its start address.
    generated_code: Mutex<BTreeMap<u64, GeneratedCode>>,
    /// The address ranges of the kernel's own code and of its modules.
    code: Mutex<KernelCode>,
    strings: HashMap<u64, Box<[u8]>>,
    /// The build ids of the kernel and of its modules, by their names.
    build_ids: HashMap<String, Arc<[u8]>>,
    /// The running kernel, if it is the same build.
    running: Option<RunningKernel>,
}

/// Code that was generated while the kernel ran: a BPF program or a trampoline.
struct GeneratedCode {
    /// The first address after the code.
    end: u64,
    name: Box<str>,
    /// The module that kallsyms states for the code.
    module: Option<&'static str>,
}

/// The source of names for kernel addresses.
enum Symbols {
    /// The text of kallsyms in the recording.
    Text(Vec<u8>),
    /// A file with a list of symbols of the same build, and the recorded address of the kernel. The addresses in the
    /// list may be those of another boot.
    File(PathBuf, KernelMapping),
    /// There are no names, for this reason.
    None(String),
}

/// A list of kernel symbols, and how far the recorded kernel is from the addresses in the list. Each boot may load the
/// kernel at another address.
struct ShiftedSymbols {
    list: Kallsyms,
    from: Shift,
}

/// The distance of the recorded kernel from the addresses in the list.
enum Shift {
    /// The kernel was at the addresses in the list.
    Unshifted,
    /// The kernel was at other addresses. Only the kernel's image has moved by this distance. Modules and other code
    /// outside of the image have not.
    Shifted {
        /// The recorded address minus the address in the list, in bytes, modulo 2^64.
        shift: u64,
        /// The recorded addresses of the kernel's own code.
        code: Range<u64>,
    },
}

impl RecordedKernel {
    /// Collects the facts about the kernel of a recording. The list of symbols is read only when it is first used.
    pub fn new(recording: &Recording, recorded: &RecordedBinaries) -> Self {
        let tracing = recording.features.tracing_data.as_ref();
        let strings = tracing.map(|tracing| printk_formats::parse(&tracing.printk_formats)).unwrap_or_default();
        let mut code = KernelCode::default();
        kernel_files(recording).for_each(|id| code.list_file(&id.path));
        let mapped = recording.kernel.as_ref();
        let build_id = recorded_build_id(recording);
        let mut build_ids: HashMap<String, Arc<[u8]>> =
            kernel_files(recording).map(|id| (id.path.clone(), Arc::from(&*id.id))).collect();
        if let Some(id) = build_id {
            build_ids.entry(KERNEL.to_owned()).or_insert_with(|| Arc::from(&**id));
        }
        let is_running = is_running(recording);
        let symbols = match (tracing.map(|tracing| &tracing.kallsyms).filter(|text| !text.is_empty()), build_id) {
            (Some(text), _) => Symbols::Text(text.clone()),
            (None, None) => Symbols::None(
                "the recording has no build id of its kernel; `perf record` stores it (into a pipe, use --buildid-mmap)"
                    .to_owned(),
            ),
            (None, Some(id)) => {
                let list = if is_running { Some("/proc/kallsyms".into()) } else { recorded.kallsyms(id) };
                match (list, mapped) {
                    (Some(list), Some(kernel)) => Symbols::File(list, kernel.clone()),
                    (Some(_), None) => Symbols::None("the recording has no record of its kernel's address".to_owned()),
                    (None, _) => {
                        Symbols::None("another kernel was recorded; perf's cache ~/.debug lacks its symbols".to_owned())
                    }
                }
            }
        };
        let running = Tracefs::find().ok().filter(|_| is_running).map(RunningKernel::new);
        let (list, generated_code, code) = (OnceLock::new(), Mutex::default(), Mutex::new(code));
        Self { symbols, list, generated_code, code, strings, build_ids, running }
    }

    fn list(&self) -> Option<&ShiftedSymbols> {
        self.list.get_or_init(|| self.read()).as_ref()
    }

    /// Returns the generated code at an address: its first address, the address after its last address, its name, and the
    /// module that kallsyms states for it.
    fn generated(&self, addr: u64) -> Option<(u64, u64, String, Option<&'static str>)> {
        let generated_code = self.generated_code.lock();
        let (&start, GeneratedCode { end, name, module }) = generated_code.range(..=addr).next_back()?;
        (addr < *end).then(|| (start, *end, name.to_string(), *module))
    }

    /// Returns whether the recorded kernel had the listed symbol at this address. The symbol belongs to `module`.
    fn is_at(&self, addr: u64, module: Option<&str>) -> bool {
        // A list from another time contains other BPF programs at these addresses. So the names of BPF programs in such
        // a list are ignored.
        if module == Some(BPF) && !matches!(self.symbols, Symbols::Text(_)) {
            return false;
        }
        // In a list from another boot, the addresses may belong to other modules.
        let code = self.code.lock();
        code.module(addr).is_none_or(|mapped| module.is_some_and(|name| mapped.is_named(name)))
    }

    fn read(&self) -> Option<ShiftedSymbols> {
        let list = match &self.symbols {
            Symbols::Text(text) => {
                let list = Kallsyms::parse(&String::from_utf8_lossy(text)).map_err(|reason| reason.to_string());
                list.map(|list| ShiftedSymbols { list, from: Shift::Unshifted })
            }
            Symbols::File(path, kernel) => {
                let list = Kallsyms::read(path).map_err(|reason| reason.to_string());
                list.and_then(|list| ShiftedSymbols::new(list, kernel))
            }
            Symbols::None(why) => Err(why.clone()),
        };
        list.map_err(|why| output::say(format_args!("kernel addresses have no names: {why}"))).ok()
    }
}

/// The name of the kernel's own code, if the recording does not name a file for it.
const KERNEL: &str = "[kernel.kallsyms]";

/// The module name of BPF programs in kallsyms.
const BPF: &str = "bpf";

/// Returns the module name in kallsyms for code that was generated while the kernel ran
/// (`ftrace_get_trampoline_kallsym()` in kernel/trace/ftrace.c, `kprobe_cache_get_kallsym()` in kernel/kprobes.c).
fn module(kind: KsymbolKind, name: &str) -> Option<&'static str> {
    match (kind, name) {
        (KsymbolKind::Bpf, _) => Some(BPF),
        (KsymbolKind::OutOfLine, "ftrace_trampoline") => Some("__builtin__ftrace"),
        (KsymbolKind::OutOfLine, "kprobe_insn_page" | "kprobe_optinsn_page") => Some("__builtin__kprobes"),
        // Code of an unknown kind is treated as part of the kernel itself.
        (KsymbolKind::OutOfLine | KsymbolKind::Other, _) => None,
    }
}

impl ShiftedSymbols {
    fn new(list: Kallsyms, kernel: &KernelMapping) -> Result<ShiftedSymbols, String> {
        let KernelMapping { start, end, symbol, address, .. } = kernel;
        let listed =
            list.bound(symbol).ok_or_else(|| format!("the list of kernel symbols does not contain `{symbol}`"))?;
        let from = match address.wrapping_sub(listed) {
            0 => Shift::Unshifted,
            shift => Shift::Shifted { shift, code: *start..*end },
        };
        Ok(ShiftedSymbols { list, from })
    }

    fn lookup(&self, addr: u64) -> Option<Symbol<'_>> {
        match &self.from {
            Shift::Unshifted => self.list.lookup(addr),
            Shift::Shifted { shift, code } => {
                let found = self.list.lookup(addr.wrapping_sub(*shift)).filter(|_| code.contains(&addr));
                found.filter(|symbol| symbol.module.is_none())
            }
        }
    }

    fn lookup_as_perf(&self, addr: u64) -> Option<PerfSymbol<'_>> {
        let Shift::Shifted { shift, .. } = &self.from else { return self.list.lookup_as_perf(addr) };
        let found = self.list.lookup_as_perf(addr.wrapping_sub(*shift)).filter(|symbol| symbol.module.is_none())?;
        let Extent { start, end, binding } = found.extent;
        let extent = Extent { start: start.wrapping_add(*shift), end: end.wrapping_add(*shift), binding };
        Some(PerfSymbol { extent, ..found })
    }

    fn perf_range(&self) -> Option<(u64, u64)> {
        let shift = if let Shift::Shifted { shift, .. } = &self.from { *shift } else { 0 };
        self.list.perf_range().map(|(start, end)| (start.wrapping_add(shift), end.wrapping_add(shift)))
    }
}

impl Kernel for RecordedKernel {
    fn symbol(&self, addr: u64) -> Option<KernelSymbol<'_>> {
        if let Some((start, end, name, module)) = self.generated(addr) {
            let (name, module) = (name.into(), module.map(Into::into));
            return Some(KernelSymbol { name, offset: addr - start, size: end - start, module });
        }
        let found = self.list()?.lookup(addr).filter(|found| self.is_at(addr, found.module))?;
        let (name, module) = (found.name.into(), found.module.map(Into::into));
        Some(KernelSymbol { name, offset: found.offset, size: found.size, module })
    }

    fn perf_symbol(&self, addr: u64) -> Option<PerfKernelSymbol<'_>> {
        if let Some((start, end, name, module)) = self.generated(addr) {
            let (name, module) = (name.into(), module.map(Into::into));
            // These are the values that perf sets in `machine__process_ksymbol_register()`, which calls `symbol__new()`
            // (`tools/perf/util/machine.c`).
            return Some(PerfKernelSymbol { name, start, end, binding: 0, module });
        }
        let found = self.list()?.lookup_as_perf(addr).filter(|found| self.is_at(addr, found.module))?;
        let Extent { start, end, binding } = found.extent;
        Some(PerfKernelSymbol { name: found.name.into(), start, end, binding, module: found.module.map(Into::into) })
    }

    fn perf_map(&self, addr: u64) -> Option<(u64, u64)> {
        if let Some((start, end, ..)) = self.generated(addr) {
            return Some((start, end));
        }
        let listed = self.list().and_then(ShiftedSymbols::perf_range);
        let code = self.code.lock();
        code.module_range(addr).or(listed).or_else(|| code.kernel_range())
    }

    fn build_id(&self, dso: &str) -> Option<Arc<[u8]>> {
        self.build_ids.get(dso).cloned()
    }

    fn symbol_changed(&self, symbol: &Ksymbol<'_>) {
        let &Ksymbol { addr, len, kind, removed, name } = symbol;
        let mut generated_code = self.generated_code.lock();
        if removed {
            generated_code.remove(&addr);
        } else {
            let name: Box<str> = String::from_utf8_lossy(name).into();
            let module = module(kind, &name);
            generated_code.insert(addr, GeneratedCode { end: addr.saturating_add(len.into()), name, module });
        }
    }

    fn code_mapped(&self, mapping: &Mmap2<'_>) {
        self.code.lock().mapped(mapping.addr, mapping.len, &String::from_utf8_lossy(mapping.filename));
    }

    fn dso(&self, addr: u64, symbol: Option<&KernelSymbol<'_>>) -> Arc<str> {
        self.code.lock().dso(addr, symbol.map(|symbol| symbol.module.as_deref()))
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

/// Returns the files of the kernel in the recording's list of build ids: the kernel itself, and its modules.
fn kernel_files(recording: &Recording) -> impl Iterator<Item = &BuildId> {
    let of_kernel = |misc: u16| misc & PERF_RECORD_MISC_CPUMODE_MASK == PERF_RECORD_MISC_KERNEL;
    recording.features.build_ids.iter().filter(move |id| of_kernel(id.misc))
}

/// Returns the build id of a recording's kernel, if the recording contains it.
fn recorded_build_id(recording: &Recording) -> Option<&Vec<u8>> {
    // The kernel itself is listed as [kernel.kallsyms], or with the path of a vmlinux file.
    let listed = kernel_files(recording).find(|id| module_name(&id.path).is_none());
    listed.map(|id| &id.id).or(recording.kernel.as_ref().and_then(|kernel| kernel.build_id.as_ref()))
}

/// Returns whether a recording is from the running kernel, by its build id.
pub fn is_running(recording: &Recording) -> bool {
    recorded_build_id(recording).is_some_and(|id| running_build_id().as_ref() == Some(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that was recorded at another address still gets the names of its code.
    #[test]
    fn a_shifted_kernel_has_the_names_of_its_code() {
        const LIST: &str = "ffffffff81000000 T _text\nffffffff81000000 T _stext\nffffffff81000100 t f\n\
                            ffffffff81000200 T _etext\nffffffffa1000000 t g\t[m]\n";
        let names = |address: u64| {
            let (start, end) = (address, address + 0x200);
            let kernel = KernelMapping { start, end, symbol: "_text".into(), address, build_id: None };
            let moved = ShiftedSymbols::new(Kallsyms::parse(LIST).unwrap(), &kernel).unwrap();
            let name = |addr| moved.lookup(addr).map(|symbol| (symbol.name.to_owned(), symbol.offset));
            [address + 0x108, address + 0x300, 0xffffffffa1000004, 0xffffffffa1000004 + (address - 0xffffffff81000000)]
                .map(name)
        };
        let named = |name: &str, offset| Some((name.to_owned(), offset));
        assert_eq!(names(0xffffffff81000000), [named("f", 8), None, named("g", 4), named("g", 4)]);
        assert_eq!(names(0xffffffff91000000), [named("f", 8), None, None, None]);
        let unlisted = KernelMapping { start: 0, end: 1, symbol: "_x".into(), address: 0, build_id: None };
        assert!(ShiftedSymbols::new(Kallsyms::parse(LIST).unwrap(), &unlisted).is_err());
    }

    /// Generated code gets the module name of its kind, not always `bpf`.
    #[test]
    fn generated_code_has_the_module_of_kallsyms() {
        let (symbols, list, generated_code) = (Symbols::Text(Vec::new()), OnceLock::from(None), Mutex::default());
        let (code, strings, build_ids) = (Mutex::default(), HashMap::new(), HashMap::new());
        let kernel = RecordedKernel { symbols, list, generated_code, code, strings, build_ids, running: None };
        let shown = |addr: u64, kind: KsymbolKind, name: &str| {
            let generated_code = Ksymbol { addr, len: 0x10, kind, removed: false, name: name.as_bytes() };
            kernel.symbol_changed(&generated_code);
            let found = kernel.symbol(addr + 8).map(|found| (found.name.into_owned(), found.offset, found.module));
            let found = found.map(|(name, offset, module)| (name, offset, module.map(|module| module.into_owned())));
            kernel.symbol_changed(&Ksymbol { removed: true, ..generated_code });
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
}
