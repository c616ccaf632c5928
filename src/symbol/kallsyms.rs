//! The kernel's symbols from the text of /proc/kallsyms, looked up as the kernel itself does for `%pS`.

use std::{borrow::Cow, collections::HashMap, path::Path};

use super::Reason;

/// The kernel's symbols by address.
#[derive(Debug)]
pub struct Kallsyms {
    /// Ascending; of several at one address only the first of the list.
    entries: Vec<Entry>,
    /// All names, back to back.
    names: String,
    modules: Vec<String>,
    /// The symbols that say where the kernel proper lies.
    bounds: HashMap<&'static str, u64>,
    /// Where the kernel proper has its text; addresses outside have names only in modules.
    kernel: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    /// Where its name begins in `names`.
    name: u32,
    name_size: u16,
    /// An index into `modules`, or `KERNEL`.
    module: u16,
}

const KERNEL: u16 = u16::MAX;
/// The list does not say where the last symbol of a module ends. Longer functions are not found in modules.
const LAST_OF_MODULE: u64 = 64 << 10;

/// A symbol that an address is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Its name.
    pub name: &'a str,
    /// How far the address is behind its begin.
    pub offset: u64,
    /// Its size: up to the next symbol.
    pub size: u64,
    /// The module it is in; also `bpf` and other makers of code at run time.
    pub module: Option<&'a str>,
}

impl Symbol<'_> {
    /// Where the symbol is, as `perf` shows it: `[kernel.kallsyms]`, `[ext4]`, `[bpf]`.
    pub fn dso(&self) -> Cow<'static, str> {
        self.module.map_or(Cow::Borrowed("[kernel.kallsyms]"), |module| format!("[{module}]").into())
    }
}

impl Kallsyms {
    /// Reads a list like /proc/kallsyms.
    pub fn read(path: impl AsRef<Path>) -> Result<Kallsyms, Reason> {
        let path = path.as_ref();
        let bytes = std::fs::read(path)
            .map_err(|error| Reason::Unreadable { path: path.display().to_string(), error: error.to_string() })?;
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    /// Reads the text of such a list: `address type name`, and `[module]` behind a tab.
    pub fn parse(text: &str) -> Result<Kallsyms, Reason> {
        let mut symbols = Kallsyms {
            entries: Vec::with_capacity(text.len() / 44),
            names: String::with_capacity(text.len() / 2),
            modules: Vec::new(),
            bounds: HashMap::new(),
            kernel: Vec::new(),
        };
        let mut modules = HashMap::new();
        let mut hidden = false;
        for (address, name, module) in text.lines().filter_map(line) {
            hidden |= address == 0;
            // What the assembler needs is in the symbol tables of modules too (is_mapping_symbol()).
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
            let (start, name_size) = (symbols.names.len() as u32, name.len() as u16);
            symbols.names.push_str(name);
            symbols.entries.push(Entry { address, name: start, name_size, module });
        }
        if symbols.entries.len() <= 1 {
            return Err(if hidden { Reason::AddressesHidden } else { Reason::NoSymbols });
        }
        symbols.kernel = kernel_text(&symbols.bounds);
        // Stable, so that the first of the list stays the first of its address: it is the one that get_symbol_pos()
        // takes for the kernel proper and find_kallsyms_symbol() for a module.
        symbols.entries.sort_by_key(|entry| entry.address);
        symbols.entries.dedup_by_key(|entry| entry.address);
        Ok(symbols)
    }

    /// How many symbols there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none. Never, as a list without symbols is no list.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The address of a symbol that says where the kernel lies, as `_text`.
    pub fn bound(&self, name: &str) -> Option<u64> {
        self.bounds.get(name).copied()
    }

    /// The symbol that an address is in.
    pub fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        let next = self.entries.partition_point(|entry| entry.address <= address);
        let entry = self.entries[..next].last()?;
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

    fn name(&self, entry: &Entry) -> &str {
        let start = entry.name as usize;
        &self.names[start..start + usize::from(entry.name_size)]
    }
}

/// Symbols that say where the kernel's text lies.
const BOUNDS: [&str; 6] = ["_text", "_stext", "_etext", "_end", "_sinittext", "_einittext"];

/// The addresses that is_ksym_addr() (kernel/kallsyms.c) takes for the kernel's: with CONFIG_KALLSYMS_ALL, which lists
/// `_end`, the whole image, else its text.
fn kernel_text(bounds: &HashMap<&str, u64>) -> Vec<(u64, u64)> {
    let range = |from, to| Some((*bounds.get(from)?, *bounds.get(to)?));
    match range("_stext", "_end") {
        Some(whole) => vec![whole],
        None => [range("_stext", "_etext"), range("_sinittext", "_einittext")].into_iter().flatten().collect(),
    }
}

fn line(line: &str) -> Option<(u64, &str, Option<&str>)> {
    let (address, rest) = line.split_once(' ')?;
    let (_, rest) = rest.split_once(' ')?;
    let (name, module) = match rest.split_once('\t') {
        Some((name, module)) => (name, Some(module.trim_start_matches('[').trim_end_matches(']'))),
        None => (rest, None),
    };
    Some((u64::from_str_radix(address, 16).ok()?, name, module))
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
            }
        }
    }

    /// The oracle: the kernel's own `%pS` for the call sites of kmalloc. With the option `fields` it prints the number
    /// behind it, the lower half as an int: enough for a kernel in the top 2 GiB, as x86-64's is.
    #[test]
    fn as_the_kernel_prints_them() {
        let skip = |why: &str| println!("skipped: {why}");
        let Ok(symbols) = Kallsyms::read("/proc/kallsyms") else { return skip("no /proc/kallsyms") };
        let instance = format!("/sys/kernel/tracing/instances/perf-prof-kallsyms-{}", std::process::id());
        if let Err(error) = std::fs::create_dir(&instance) {
            return skip(&format!("{instance}: {error}"));
        }
        let write = |file: &str, text: &str| std::fs::write(format!("{instance}/{file}"), text);
        let traced = write("trace_options", "fields").and_then(|()| write("events/kmem/kmalloc/enable", "1"));
        let traced = traced.and_then(|()| {
            for _ in 0..200 {
                drop(std::fs::read_dir("/proc/self/fd"));
                drop(std::fs::read_to_string("/proc/self/maps"));
            }
            write("events/kmem/kmalloc/enable", "0")?;
            std::fs::read(format!("{instance}/trace"))
        });
        // A child of another test may hold a file of it until it calls exec; whoever looks into it, longer.
        let busy = || std::fs::remove_dir(&instance).is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY));
        let mut tries = 0;
        while busy() && tries < 500 {
            tries += 1;
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let Ok(text) = traced else { return skip("no kmem:kmalloc, or no option `fields`") };
        let text = String::from_utf8_lossy(&text);
        let sites =
            text.lines().filter_map(|line| line.split_once("call_site=")?.1.split_once(')')?.0.split_once(" ("));
        let mut compared = 0;
        for (printed, number) in sites {
            let Ok(low) = number.parse::<i32>() else { return skip("not the numbers of this kernel's `fields`") };
            let Some(symbol) = symbols.lookup(i64::from(low) as u64) else { panic!("{printed} {number}") };
            let module = symbol.module.map(|module| format!(" [{module}]")).unwrap_or_default();
            let Symbol { name, offset, size, .. } = symbol;
            assert_eq!(printed, format!("{name}+{offset:#x}/{size:#x}{module}"));
            compared += 1;
        }
        assert!(compared > 0, "kmalloc was never called:\n{text}");
    }
}
