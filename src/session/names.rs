//! What rendering asks of the running kernel, read when it is first asked for: most scripts never ask, and kallsyms has
//! 200,000 lines.

use std::{
    collections::HashMap,
    fs,
    sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError},
};

use crate::{
    record::Ksymbol,
    symbol::{KernelSymbols, Symbol},
    sys::{output, tracefs::Tracefs},
    tracefs::{BitField, Btf, EventFormat, Kernel, KernelSymbol, learn, printk_formats},
};

/// The running kernel.
pub struct RunningKernel {
    tracefs: Tracefs,
    symbols: Mutex<KernelSymbols>,
    /// That there are no symbols is said once, as every stack will be without names.
    hidden: Once,
    strings: OnceLock<HashMap<u64, Box<[u8]>>>,
    constants: OnceLock<Btf>,
    /// Per struct that was asked for: reading one costs a walk through all of BTF, keeping all costs its size.
    structs: Mutex<HashMap<String, Btf>>,
    hz: OnceLock<Option<u32>>,
}

impl RunningKernel {
    /// Nothing is read yet.
    pub fn new(tracefs: Tracefs) -> Self {
        Self {
            tracefs,
            symbols: Mutex::default(),
            hidden: Once::new(),
            strings: OnceLock::new(),
            constants: OnceLock::new(),
            structs: Mutex::default(),
            hz: OnceLock::new(),
        }
    }

    /// Only those who hold the interpreter's lock come here, so nobody waits.
    fn symbols(&self) -> MutexGuard<'_, KernelSymbols> {
        self.symbols.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_struct<R>(&self, tag: &str, ask: impl Fn(&Btf) -> R) -> R {
        let mut structs = self.structs.lock().unwrap_or_else(PoisonError::into_inner);
        if !structs.contains_key(tag) {
            structs.insert(tag.to_owned(), read_btf(|name| name == tag));
        }
        ask(structs.entry(tag.to_owned()).or_default())
    }
}

impl Kernel for RunningKernel {
    fn symbol(&self, addr: u64) -> Option<KernelSymbol<'_>> {
        match self.symbols().list(addr) {
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

    fn symbol_changed(&self, _: &Ksymbol<'_>) {
        self.symbols().changed();
    }

    fn string(&self, addr: u64) -> Option<&[u8]> {
        let read = || {
            let text = self.tracefs.printk_formats();
            text.map(|text| printk_formats::parse(text.as_bytes())).unwrap_or_default()
        };
        self.strings.get_or_init(read).get(&addr).map(|text| &**text)
    }

    fn constant(&self, name: &str) -> Option<i64> {
        self.constants.get_or_init(|| read_btf(|_| false)).constant(name)
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
            learn::hz(&EventFormat::parse(system, &text).ok()?)
        };
        *self.hz.get_or_init(learn)
    }
}

/// The kernel's types; nothing where it has no BTF.
fn read_btf(wanted: impl Fn(&str) -> bool) -> Btf {
    fs::read("/sys/kernel/btf/vmlinux").ok().and_then(|bytes| Btf::parse(&bytes, wanted)).unwrap_or_default()
}
