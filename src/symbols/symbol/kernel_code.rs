//! The address ranges of the kernel's own code and of its modules, with the names that perf shows for them. This module
//! reads no files.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
};

/// The name of the kernel's own code if the recording states no other name.
const KALLSYMS: &str = "[kernel.kallsyms]";

/// The name of an address at which no code is known.
const UNKNOWN: &str = "[unknown]";

/// The maximum number of modules that are kept. A machine has a few hundred.
const MODULES_LIMIT: usize = 1 << 14;

/// Where the code of a kernel and of its modules is.
#[derive(Debug)]
pub struct KernelCode {
    /// The range of the kernel's own code. Empty if it is not known.
    kernel: Range<u64>,
    kernel_name: Arc<str>,
    /// The modules, by their first addresses.
    modules: BTreeMap<u64, Module>,
    /// The paths of the module files that a recording lists. The key is the module's name in brackets.
    listed: HashMap<Box<str>, Arc<str>>,
    unknown: Arc<str>,
}

/// A module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The address after the module's code.
    end: u64,
    /// The module's name in brackets, for example `[kvm]`.
    name: Box<str>,
    /// The name that perf shows: the path of the module's file if the file is listed, otherwise the name in brackets.
    dso: Arc<str>,
}

impl Module {
    /// Returns whether `name` is the module's name in kallsyms, which has no brackets.
    pub fn is_named(&self, name: &str) -> bool {
        self.name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) == Some(name)
    }
}

impl Default for KernelCode {
    fn default() -> Self {
        let (kernel_name, unknown) = (KALLSYMS.into(), UNKNOWN.into());
        Self { kernel: 0..0, kernel_name, modules: BTreeMap::new(), listed: HashMap::new(), unknown }
    }
}

impl KernelCode {
    /// Adds a file from a recording's list of kernel files. perf shows the path of such a file in place of the module's
    /// name. The first file that is not a module is the kernel itself (`machine__process_kernel_mmap_event()` in
    /// `tools/perf/util/machine.c`).
    pub fn list_file(&mut self, path: &str) {
        match module_name(path) {
            Some(name) => drop(self.listed.insert(name.into(), path.into())),
            None if *self.kernel_name == *KALLSYMS => self.kernel_name = path.into(),
            None => {}
        }
    }

    /// Adds a mapping of kernel code. `name` is the path of a module, the name of a module in brackets, or
    /// `[kernel.kallsyms]` followed by a symbol.
    pub fn mapped(&mut self, start: u64, len: u64, name: &str) {
        let end = start.saturating_add(len);
        if name.starts_with(KALLSYMS) {
            // Some recorders write an empty range, which means all addresses (`machine__set_kernel_mmap()` in
            // `tools/perf/util/machine.c`).
            self.kernel = if (start, end) == (0, 0) { 0..u64::MAX } else { start..end };
        } else if let Some(name) = module_name(name)
            && start < end
            && self.modules.len() < MODULES_LIMIT
        {
            let dso = self.listed.get(&*name).cloned().unwrap_or_else(|| name.as_str().into());
            self.modules.insert(start, Module { end, name: name.into(), dso });
        }
    }

    /// Returns the module that contains an address.
    pub fn module(&self, addr: u64) -> Option<&Module> {
        let (_, module) = self.modules.range(..=addr).next_back()?;
        (addr < module.end).then_some(module)
    }

    /// Returns the addresses of the module that contains an address.
    pub fn module_range(&self, addr: u64) -> Option<(u64, u64)> {
        let (&start, module) = self.modules.range(..=addr).next_back()?;
        (addr < module.end).then_some((start, module.end))
    }

    /// Returns the addresses of the kernel's own code, if they are known.
    pub fn kernel_range(&self) -> Option<(u64, u64)> {
        (!self.kernel.is_empty()).then_some((self.kernel.start, self.kernel.end))
    }

    /// Returns the name that perf shows for the code at an address. `symbol` is `None` if no function is known at the
    /// address. Otherwise `symbol` contains the module of the function in kallsyms, and `Some(None)` means the kernel
    /// itself.
    pub fn dso(&self, addr: u64, symbol: Option<Option<&str>>) -> Arc<str> {
        // A BPF program may have been loaded at the address of an unloaded module.
        let is_generated = |module: &str| module == "bpf" || module.starts_with("__builtin__");
        match (self.module(addr), symbol) {
            (_, Some(Some(module))) if is_generated(module) => format!("[{module}]").into(),
            (None, Some(Some(module))) => format!("[{module}]").into(),
            (Some(module), _) => Arc::clone(&module.dso),
            (None, Some(None)) => Arc::clone(&self.kernel_name),
            (None, None) if self.kernel.contains(&addr) => Arc::clone(&self.kernel_name),
            (None, None) => Arc::clone(&self.unknown),
        }
    }
}

/// Returns the name of a module in brackets, from the path of its file or from a name in brackets. Returns `None` for
/// other files, by the rules of `__kmod_path__parse()` in `tools/perf/util/dso.c`.
pub fn module_name(path: &str) -> Option<String> {
    const NOT_MODULES: [&str; 6] =
        [KALLSYMS, "[guest.kernel.kallsyms", "[vdso]", "[vdso32]", "[vdsox32]", "[vsyscall]"];
    let file = path.rsplit('/').next().unwrap_or(path);
    if file.starts_with('[') {
        return (!NOT_MODULES.iter().any(|name| file.starts_with(name))).then(|| file.to_owned());
    }
    let plain = [".gz", ".xz", ".zst"].iter().find_map(|packed| file.strip_suffix(packed)).unwrap_or(file);
    // The kernel replaces `-` by `_` in names of modules.
    plain.strip_suffix(".ko").filter(|name| !name.is_empty()).map(|name| format!("[{}]", name.replace('-', "_")))
}

impl KernelCode {
    /// Returns the modules that text in the format of /proc/modules lists.
    pub fn of_loaded_modules(text: &str) -> KernelCode {
        let mut code = KernelCode::default();
        loaded_modules(text).for_each(|(name, len, start)| code.mapped(start, len, &format!("[{name}]")));
        code
    }
}

/// Parses text in the format of /proc/modules. Returns the name, the size and the address of each module. Modules whose
/// addresses the kernel hides are left out.
pub fn loaded_modules(text: &str) -> impl Iterator<Item = (&str, u64, u64)> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, size) = (words.next()?, words.next()?.parse().ok()?);
        let start = words.nth(3)?.strip_prefix("0x")?;
        let start = u64::from_str_radix(start, 16).ok().filter(|&start| start != 0)?;
        Some((name, size, start))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_named_as_perf_names_them() {
        for (path, name) in [
            ("/lib/modules/6.1/kernel/arch/x86/kvm/kvm-intel.ko", Some("[kvm_intel]")),
            ("/lib/modules/6.1/kernel/x.ko.xz", Some("[x]")),
            ("[a.b]", Some("[a.b]")),
            ("[kernel.kallsyms]_text", None),
            ("/usr/lib/debug/boot/vmlinux-6.1", None),
            ("[vdso]", None),
            (".ko", None),
            ("", None),
        ] {
            assert_eq!(module_name(path).as_deref(), name, "{path}");
        }
    }

    #[test]
    fn an_address_has_the_name_of_the_code_that_is_mapped_there() {
        let mut code = KernelCode::default();
        assert_eq!(&*code.dso(0x1000, None), "[unknown]");
        assert_eq!((&*code.dso(0x1000, Some(None)), &*code.dso(0x1000, Some(Some("x")))), (KALLSYMS, "[x]"));
        code.list_file("/m/b-c.ko");
        code.mapped(0x1000, 0x1000, "[kernel.kallsyms]_text");
        code.mapped(0x8000, 0x1000, "/m/a.ko");
        code.mapped(0x9000, 0x1000, "/m/b-c.ko");
        code.mapped(0xb000, u64::MAX, "[d]");
        let shown: Vec<Arc<str>> = [0xfff, 0x1000, 0x2000, 0x8000, 0x8fff, 0x9000, 0xa000, u64::MAX - 1]
            .map(|addr| code.dso(addr, None))
            .into();
        let shown: Vec<&str> = shown.iter().map(|name| &**name).collect();
        let expected = ["[unknown]", KALLSYMS, "[unknown]", "[a]", "[a]", "/m/b-c.ko", "[unknown]", "[d]"];
        assert_eq!(shown, expected);
        assert_eq!((code.module_range(0x8fff), code.module_range(0xa000)), (Some((0x8000, 0x9000)), None));
        assert_eq!((code.kernel_range(), KernelCode::default().kernel_range()), (Some((0x1000, 0x2000)), None));
        assert!(code.module(0x9000).is_some_and(|module| module.is_named("b_c") && !module.is_named("b-c")));
        // A BPF program was loaded between the modules.
        assert_eq!(&*code.dso(0xa000, Some(Some("bpf"))), "[bpf]");
        assert_eq!(&*code.dso(0x9000, Some(Some("bpf"))), "[bpf]");
        code.list_file("/boot/vmlinux");
        code.list_file("/boot/other");
        code.mapped(0, 0, "[kernel.kallsyms]");
        assert_eq!((&*code.dso(1, None), &*code.dso(0x8000, None)), ("/boot/vmlinux", "[a]"));
    }

    #[test]
    fn loaded_modules_are_listed_without_hidden_ones() {
        const TEXT: &str = "kvm 1404928 1 kvm_intel, Live 0xffffffffc0a00000\n\
                            hidden 4096 0 - Live 0x0000000000000000\nbroken\nx 4096 0 - Loading 0xffffffffc0001000 (OE+)\n";
        let found: Vec<_> = loaded_modules(TEXT).collect();
        assert_eq!(found, [("kvm", 1_404_928, 0xffff_ffff_c0a0_0000), ("x", 4096, 0xffff_ffff_c000_1000)]);
    }
}
