//! The kernel's symbols, from the text of /proc/kallsyms. Lookups give the same results as the kernel's `%pS`.

use std::{borrow::Cow, collections::HashMap, path::Path, sync::OnceLock};

use super::{Extent, Reason};

/// The kernel's symbols by address.
#[derive(Debug)]
pub struct Kallsyms {
    /// The symbols, sorted by address. Symbols with equal addresses stay in the order of the text.
    entries: Vec<Entry>,
    /// All names, one after the other without separators. The letter of the symbol's type precedes each name.
    names: String,
    modules: Vec<String>,
    /// The addresses of the symbols in `BOUNDS`.
    bounds: HashMap<&'static str, u64>,
    /// The address ranges of the kernel itself. An address outside of these ranges can only get the name of a symbol of
    /// a module. If the text does not show the ranges, the list is empty, and an address can get the name of any
    /// symbol.
    kernel: Vec<(u64, u64)>,
    /// The symbols that perf would use. They are selected at the first lookup.
    of_perf: OnceLock<PerfSymbols>,
}

/// The symbols that perf would use.
#[derive(Debug)]
struct PerfSymbols {
    /// Indexes into `Kallsyms::entries`, one per address.
    entries: Vec<u32>,
    /// The address of the kernel's first symbol, and the end of its last symbol. Modules do not count.
    kernel: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    /// The offset of the name in `names`.
    name: u32,
    name_size: u16,
    /// An index into `modules`, or `KERNEL`.
    module: u16,
}

const KERNEL: u16 = u16::MAX;
/// The maximum size of a module's last symbol, whose end kallsyms does not show. Addresses beyond it get no name.
const LAST_OF_MODULE: u64 = 64 << 10;

/// The symbol that contains an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// The symbol's name.
    pub name: &'a str,
    /// The distance of the address from the symbol's start, in bytes.
    pub offset: u64,
    /// The symbol's size in bytes. A symbol extends to the next symbol.
    pub size: u64,
    /// The module that contains the symbol, or `bpf` or a similar name for code that the kernel generated. `None` for
    /// the kernel itself.
    pub module: Option<&'a str>,
}

/// The symbol that contains an address, as perf chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfSymbol<'a> {
    /// The symbol's name.
    pub name: &'a str,
    /// The symbol's addresses and binding.
    pub extent: Extent,
    /// The module that contains the symbol, as in [`Symbol`].
    pub module: Option<&'a str>,
}

/// The page size to which perf rounds up the end of a symbol without a next symbol.
const PAGE: u64 = 4096;

impl Symbol<'_> {
    /// Returns the dso of the symbol as perf shows it, for example `[kernel.kallsyms]`, `[ext4]` or `[bpf]`.
    pub fn dso(&self) -> Cow<'static, str> {
        self.module.map_or(Cow::Borrowed("[kernel.kallsyms]"), |module| format!("[{module}]").into())
    }
}

impl Kallsyms {
    /// Reads a file in the format of /proc/kallsyms.
    pub fn read(path: impl AsRef<Path>) -> Result<Kallsyms, Reason> {
        let path = path.as_ref();
        let bytes = std::fs::read(path)
            .map_err(|error| Reason::Unreadable { path: path.display().to_string(), error: error.to_string() })?;
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    /// Parses text in the format of /proc/kallsyms. A line of the kernel itself is `address type name`. In a line of a
    /// module, a tab and `[module]` follow.
    pub fn parse(text: &str) -> Result<Kallsyms, Reason> {
        let mut symbols = Kallsyms {
            entries: Vec::with_capacity(text.len() / 44),
            names: String::with_capacity(text.len() / 2),
            modules: Vec::new(),
            bounds: HashMap::new(),
            kernel: Vec::new(),
            of_perf: OnceLock::new(),
        };
        let mut modules = HashMap::new();
        let mut hidden = false;
        for (address, letter, name, module) in text.lines().filter_map(line) {
            hidden |= address == 0;
            // The assembler's own symbols in modules are skipped, as in the kernel's lookups (is_mapping_symbol()).
            if address == 0 || (module.is_some() && (name.starts_with(".L") || name.starts_with('$'))) {
                continue;
            }
            let module = match module {
                None => {
                    if let Some(bound) = BOUNDS.iter().find(|&&bound| bound == name) {
                        symbols.bounds.entry(*bound).or_insert(address);
                    }
                    KERNEL
                }
                Some(module) => *modules.entry(module).or_insert_with(|| {
                    symbols.modules.push(module.to_owned());
                    (symbols.modules.len() - 1) as u16
                }),
            };
            symbols.names.push(letter);
            let (start, name_size) = (symbols.names.len() as u32, name.len() as u16);
            symbols.names.push_str(name);
            symbols.entries.push(Entry { address, name: start, name_size, module });
        }
        if symbols.entries.len() <= 1 {
            return Err(if hidden { Reason::AddressesHidden } else { Reason::NoSymbols });
        }
        symbols.kernel = kernel_text(&symbols.bounds);
        // The sort is stable, so the first symbol at an address stays first. The kernel uses the first symbol too: in
        // get_symbol_pos() for the kernel itself, and in find_kallsyms_symbol() for modules.
        symbols.entries.sort_by_key(|entry| entry.address);
        Ok(symbols)
    }

    /// Returns the number of symbols. Several symbols may have the same address.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no symbols. The result is always false, because parsing fails for a text without
    /// symbols.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the address of a symbol that marks the start or the end of a part of the kernel, such as `_text`.
    pub fn bound(&self, name: &str) -> Option<u64> {
        self.bounds.get(name).copied()
    }

    /// Returns the symbol that contains an address.
    pub fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        let next = self.entries.partition_point(|entry| entry.address <= address);
        let last = self.entries[..next].last()?;
        let entry = &self.entries[self.entries.partition_point(|entry| entry.address < last.address)];
        let end = self.entries.get(next).map_or(u64::MAX, |next| next.address);
        let end = if entry.module == KERNEL {
            let in_text = |&&(from, to): &&(u64, u64)| from <= address && address < to;
            match self.kernel.iter().find(in_text) {
                Some(&(_, to)) => end.min(to),
                None if self.kernel.is_empty() => end,
                None => return None,
            }
        } else if self.entries.get(next).is_some_and(|next| next.module == entry.module) {
            end
        } else {
            end.min(entry.address.saturating_add(LAST_OF_MODULE))
        };
        (address < end).then(|| Symbol {
            name: self.name(entry),
            offset: address - entry.address,
            size: end - entry.address,
            module: self.modules.get(usize::from(entry.module)).map(String::as_str),
        })
    }

    /// Returns the symbol that perf chooses for an address (`__dso__load_kallsyms()` in `tools/perf/util/symbol.c`).
    /// perf uses only some types of symbols. Of several symbols at one address, perf uses the last one in the text. The
    /// other symbols at the address get the size 0, because perf computes a symbol's size from the start of the next
    /// symbol (`symbols__fixup_end()` and `choose_best_symbol()`).
    pub fn lookup_as_perf(&self, address: u64) -> Option<PerfSymbol<'_>> {
        let of_perf = self.of_perf();
        let next = of_perf.entries.partition_point(|&at| self.entries[at as usize].address <= address);
        let at = next.checked_sub(1)?;
        let entry = &self.entries[*of_perf.entries.get(at)? as usize];
        let end = self.perf_end(entry, of_perf.entries.get(next));
        (address < end).then(|| PerfSymbol {
            name: self.name(entry),
            extent: Extent { start: entry.address, end, binding: binding(self.letter(entry)) },
            module: self.modules.get(usize::from(entry.module)).map(String::as_str),
        })
    }

    /// Returns the range of the kernel itself as perf computes it: from the start of its first symbol to the end of its
    /// last symbol (`map__fixup_start()` and `map__fixup_end()` in `tools/perf/util/map.c`).
    pub fn perf_range(&self) -> Option<(u64, u64)> {
        self.of_perf().kernel
    }

    fn of_perf(&self) -> &PerfSymbols {
        self.of_perf.get_or_init(|| {
            let is_used = |entry: &Entry| matches!(self.letter(entry).to_ascii_uppercase(), b'T' | b'W' | b'D' | b'B');
            let mut entries: Vec<u32> = Vec::with_capacity(self.entries.len());
            for (index, entry) in self.entries.iter().enumerate().filter(|(_, entry)| is_used(entry)) {
                match entries.last_mut() {
                    Some(last) if self.entries[*last as usize].address == entry.address => *last = index as u32,
                    _ => entries.push(index as u32),
                }
            }
            let is_kernel = |at: &u32| self.entries[*at as usize].module == KERNEL;
            let first = entries.iter().find(|at| is_kernel(at));
            let last = entries.iter().rposition(is_kernel);
            let kernel = first.zip(last).map(|(&first, last)| {
                let entry = &self.entries[entries[last] as usize];
                (self.entries[first as usize].address, self.perf_end(entry, entries.get(last + 1)))
            });
            PerfSymbols { entries, kernel }
        })
    }

    /// Returns the end of a symbol as perf computes it: the address after the symbol's last byte. `next` is the index
    /// of the next symbol with another address.
    fn perf_end(&self, entry: &Entry, next: Option<&u32>) -> u64 {
        let rounded = |address: u64| address.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        match next.map(|&at| &self.entries[at as usize]) {
            // The gap between the kernel and its modules may be large, so the kernel's last symbol does not extend over
            // it.
            Some(next) if (next.module == KERNEL) != (entry.module == KERNEL) => {
                rounded(entry.address.saturating_add(PAGE))
            }
            Some(next) => next.address,
            None => rounded(entry.address).saturating_add(PAGE),
        }
    }

    fn letter(&self, entry: &Entry) -> u8 {
        // The letter before the name takes one byte, because `line` replaces letters that are not ASCII.
        (entry.name as usize).checked_sub(1).and_then(|at| self.names.as_bytes().get(at)).copied().unwrap_or(b'?')
    }

    fn name(&self, entry: &Entry) -> &str {
        let start = entry.name as usize;
        &self.names[start..start + usize::from(entry.name_size)]
    }
}

/// The symbols that mark the start or the end of a part of the kernel.
const BOUNDS: [&str; 6] = ["_text", "_stext", "_etext", "_end", "_sinittext", "_einittext"];

/// Returns the address ranges of the kernel, as is_ksym_addr() (kernel/kallsyms.c) computes them. With
/// CONFIG_KALLSYMS_ALL, the text contains `_end`, and the range is the whole image. Otherwise, the ranges contain only
/// code.
fn kernel_text(bounds: &HashMap<&str, u64>) -> Vec<(u64, u64)> {
    let range = |from, to| Some((*bounds.get(from)?, *bounds.get(to)?));
    match range("_stext", "_end") {
        Some(whole) => vec![whole],
        None => [range("_stext", "_etext"), range("_sinittext", "_einittext")].into_iter().flatten().collect(),
    }
}

/// Returns the binding that perf assigns to a symbol with this letter (`kallsyms2elf_binding()` in
/// `tools/perf/util/symbol.c`).
fn binding(letter: u8) -> u8 {
    match letter {
        b'W' => object::elf::STB_WEAK.0,
        letter if letter.is_ascii_uppercase() => object::elf::STB_GLOBAL.0,
        _ => object::elf::STB_LOCAL.0,
    }
}

/// Returns the address, the letter of the type, the name and the module in a line.
fn line(line: &str) -> Option<(u64, char, &str, Option<&str>)> {
    let (address, rest) = line.split_once(' ')?;
    let (letter, rest) = rest.split_once(' ')?;
    let letter = letter.chars().next().filter(char::is_ascii).unwrap_or('?');
    let (name, module) = match rest.split_once('\t') {
        Some((name, module)) => (name, Some(module.trim_start_matches('[').trim_end_matches(']'))),
        None => (rest, None),
    };
    Some((u64::from_str_radix(address, 16).ok()?, letter, name, module))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    const LIST: &str = "\
        0000000000000000 A fixed_percpu_data\n\
        ffffffff81000000 T _stext\n\
        ffffffff81000000 T _text\n\
        ffffffff81000040 t first_alias\n\
        ffffffff81000040 T second_alias\n\
        ffffffff81000100 T __x64_sys_read\n\
        ffffffff81000200 T _etext\n\
        ffffffff82000000 D data\n\
        ffffffff83000000 T _sinittext\n\
        ffffffff83000010 t start_kernel\n\
        ffffffff83000080 T _einittext\n\
        ffffffffc0003000 t later\t[ext4]\n\
        ffffffffc0001000 t .Lmark\t[ext4]\n\
        ffffffffc0001000 t ext4_open\t[ext4]\n\
        ffffffffc0001000 T ext4_alias\t[ext4]\n\
        ffffffffc0100000 t bpf_prog_6deef7357e7b4530\t[bpf]\n";

    fn check(address: u64, expected: Expect) {
        let symbols = Kallsyms::parse(LIST).unwrap();
        let text = match symbols.lookup(address) {
            Some(Symbol { name, offset, size, module }) => format!("{name}+{offset:#x}/{size:#x} {module:?}"),
            None => "-".to_owned(),
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn lookups() {
        check(0xffffffff81000000, expect!["_stext+0x0/0x40 None"]);
        check(0xffffffff8100003f, expect!["_stext+0x3f/0x40 None"]);
        check(0xffffffff81000041, expect!["first_alias+0x1/0xc0 None"]);
        check(0xffffffff81000150, expect!["__x64_sys_read+0x50/0x100 None"]);
        check(0xffffffff83000010, expect!["start_kernel+0x0/0x70 None"]);
        check(0xffffffffc0001004, expect![[r#"ext4_open+0x4/0x2000 Some("ext4")"#]]);
        check(0xffffffffc0003004, expect![[r#"later+0x4/0x10000 Some("ext4")"#]]);
        check(0xffffffffc0100008, expect![[r#"bpf_prog_6deef7357e7b4530+0x8/0x10000 Some("bpf")"#]]);
        for nowhere in [0, 1, 0xffffffff80ffffff, 0xffffffff81000200, 0xffffffff82000000, 0xffffffffc0013000, u64::MAX]
        {
            check(nowhere, expect!["-"]);
        }
    }

    /// perf takes the last symbol at an address, ignores some types of symbols, and lets the kernel's last symbol end
    /// at the end of a page.
    #[test]
    fn lookups_as_perf() {
        let text = LIST.replace("ffffffff81000100 T", "ffffffff81000080 R constant\nffffffff81000100 W");
        let symbols = Kallsyms::parse(&text).unwrap();
        let shown = |address| {
            let PerfSymbol { name, extent: Extent { start, end, binding }, module } =
                symbols.lookup_as_perf(address)?;
            Some(format!("{name} {:#x}+{:#x} {binding} {module:?}", start as u32, end - start))
        };
        for (address, expected) in [
            (0xffffffff80ffffff, None),
            (0xffffffff81000000, Some("_text 0x81000000+0x40 1 None")),
            (0xffffffff81000041, Some("second_alias 0x81000040+0xc0 1 None")),
            (0xffffffff81000090, Some("second_alias 0x81000040+0xc0 1 None")),
            (0xffffffff81000100, Some("__x64_sys_read 0x81000100+0x100 2 None")),
            (0xffffffff81000200, Some("_etext 0x81000200+0xfffe00 1 None")),
            (0xffffffff83000010, Some("start_kernel 0x83000010+0x70 0 None")),
            (0xffffffff83001fff, Some("_einittext 0x83000080+0x1f80 1 None")),
            (0xffffffff83002000, None),
            (0xffffffffc0001004, Some("ext4_alias 0xc0001000+0x2000 1 Some(\"ext4\")")),
            (0xffffffffc0003004, Some("later 0xc0003000+0xfd000 0 Some(\"ext4\")")),
            (0xffffffffc0100fff, Some("bpf_prog_6deef7357e7b4530 0xc0100000+0x1000 0 Some(\"bpf\")")),
            (0xffffffffc0101000, None),
            (u64::MAX, None),
        ] {
            assert_eq!(shown(address).as_deref(), expected, "{address:#x}");
        }
        assert_eq!(symbols.perf_range(), Some((0xffffffff81000000, 0xffffffff83002000)));
    }

    #[test]
    fn with_data_the_whole_image_has_names() {
        let text = format!("{LIST}ffffffff84000000 B _end\n");
        let symbols = Kallsyms::parse(&text).unwrap();
        assert_eq!(symbols.lookup(0xffffffff82000004).unwrap().name, "data");
        assert_eq!(symbols.lookup(0xffffffff84000000), None);
    }

    #[test]
    fn hidden_addresses_and_empty_lists_are_reasons() {
        let hidden = "0000000000000000 T _stext\n0000000000000000 T _text\n";
        assert_eq!(Kallsyms::parse(hidden).unwrap_err(), Reason::AddressesHidden);
        assert_eq!(Kallsyms::parse("").unwrap_err(), Reason::NoSymbols);
        assert!(matches!(Kallsyms::read("/no/such/file").unwrap_err(), Reason::Unreadable { .. }));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in any::<String>(), lines in prop::collection::vec("[0-9a-f]{0,17} . [a-z$.L]{0,5}(\t\\[?[a-z]{0,3}\\]?)?", 0..9), at in any::<u64>()) {
            for text in [text, lines.join("\n")] {
                if let Ok(symbols) = Kallsyms::parse(&text)
                    && let Some(symbol) = symbols.lookup(at)
                {
                    prop_assert!(symbol.offset < symbol.size);
                }
                if let Ok(symbols) = Kallsyms::parse(&text)
                    && let Some(symbol) = symbols.lookup_as_perf(at)
                {
                    prop_assert!((symbol.extent.start..symbol.extent.end).contains(&at));
                }
            }
        }
    }
}
