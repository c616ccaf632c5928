//! What rendering asks of this machine's kernel.

use std::{collections::HashMap, fs, io};

use perf_prof::tracefs::{BitField, Btf, EventFormat, Kernel, KernelSymbol, learn, printk_formats};

pub struct Machine {
    symbols: Vec<Symbol>,
    named: Vec<(u64, u64)>,
    strings: HashMap<u64, Box<[u8]>>,
    btf: Btf,
    hz: Option<u32>,
    vmemmap_base: Option<u64>,
}

struct Symbol {
    addr: u64,
    name: String,
    module: Option<String>,
}

impl Machine {
    pub fn read() -> io::Result<Machine> {
        let wanted = |name: &str| matches!(name, "page" | "kvm_mmu_page_role");
        let writeback = fs::read_to_string("/sys/kernel/tracing/events/writeback/writeback_single_inode/format");
        let writeback = writeback.ok().and_then(|text| EventFormat::parse("writeback", &text).ok());
        let kallsyms = fs::read_to_string("/proc/kallsyms")?;
        Ok(Machine {
            named: named(&kallsyms),
            symbols: symbols(&kallsyms),
            strings: printk_formats::parse(&fs::read("/sys/kernel/tracing/printk_formats")?),
            btf: fs::read("/sys/kernel/btf/vmlinux").ok().and_then(|btf| Btf::parse(&btf, wanted)).unwrap_or_default(),
            hz: writeback.and_then(|format| learn::hz(&format)),
            vmemmap_base: None,
        })
    }

    /// Finds the variable's value in the first text that gives a page both as address and as number. All other events
    /// that show a page must agree.
    pub fn learn_vmemmap_base(&mut self, text: &str) {
        let Some(struct_page) = self.btf.size_of("struct page") else { return };
        let mut pages = text.lines().filter(|line| line.starts_with("mm_page_"));
        let found = pages.find_map(|line| learn::vmemmap_base(line, struct_page));
        self.vmemmap_base = self.vmemmap_base.or(found);
    }
}

/// The first symbol of each address, in order; it is the one that the kernel chooses.
fn symbols(kallsyms: &str) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> = kallsyms.lines().filter_map(symbol).collect();
    symbols.sort_by_key(|symbol| symbol.addr);
    symbols.dedup_by_key(|symbol| symbol.addr);
    symbols
}

/// Where the kernel gives addresses of its own image names (`is_ksym_addr` in include/linux/kallsyms.h): in its text,
/// and everywhere when it was built with CONFIG_KALLSYMS_ALL, which shows in names of local data.
fn named(kallsyms: &str) -> Vec<(u64, u64)> {
    if kallsyms.lines().any(|line| line.contains(" d ") || line.contains(" b ")) {
        return vec![(0, u64::MAX)];
    }
    let addr =
        |name: &str| kallsyms.lines().filter_map(symbol).find(|symbol| symbol.name == name).map(|symbol| symbol.addr);
    let range = |start: &str, end: &str| Some((addr(start)?, addr(end)?));
    [range("_stext", "_etext"), range("_sinittext", "_einittext")].into_iter().flatten().collect()
}

fn symbol(line: &str) -> Option<Symbol> {
    let mut words = line.split_ascii_whitespace();
    let addr = u64::from_str_radix(words.next()?, 16).ok()?;
    let name = words.nth(1)?.to_owned();
    let module = words.next().map(|module| module.trim_matches(['[', ']']).to_owned());
    Some(Symbol { addr, name, module })
}

impl Kernel for Machine {
    fn symbol(&self, addr: u64) -> Option<KernelSymbol<'_>> {
        let at = self.symbols.partition_point(|symbol| symbol.addr <= addr);
        let (symbol, next) = (&self.symbols[at.checked_sub(1)?], self.symbols.get(at)?);
        if symbol.module.is_none() && !self.named.iter().any(|&(start, end)| (start..end).contains(&addr)) {
            return None;
        }
        let (offset, size) = (addr - symbol.addr, next.addr - symbol.addr);
        Some(KernelSymbol { name: &symbol.name, offset, size, module: symbol.module.as_deref() })
    }

    fn string(&self, addr: u64) -> Option<&[u8]> {
        self.strings.get(&addr).map(|string| &**string)
    }

    fn constant(&self, name: &str) -> Option<i64> {
        self.btf.constant(name)
    }

    fn variable(&self, name: &str) -> Option<u64> {
        if name == "vmemmap_base" { self.vmemmap_base } else { None }
    }

    fn size_of(&self, type_name: &str) -> Option<u64> {
        self.btf.size_of(type_name)
    }

    fn member(&self, tag: &str, member: &str) -> Option<BitField> {
        self.btf.member(tag, member)
    }

    fn hz(&self) -> Option<u32> {
        self.hz
    }
}
