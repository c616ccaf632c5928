//! What rendering asks of the kernel that was recorded. What is not in the recording is taken from the running kernel only
//! if that is the same one: a name that is wrong is worse than none.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader},
    sync::OnceLock,
};

use super::names::RunningKernel;
use crate::{
    perfdata::Recording,
    symbol::{Kallsyms, Recorded},
    sys::{output, tracefs::Tracefs},
    tracefs::{BitField, Kernel, KernelSymbol, printk_formats},
};

/// The recorded kernel.
pub struct RecordedKernel {
    /// The list of symbols, as text, and where it is from.
    symbols: Symbols,
    list: OnceLock<Option<Kallsyms>>,
    strings: HashMap<u64, Box<[u8]>>,
    /// The running kernel, if it is the same.
    running: Option<RunningKernel>,
}

/// Where names of addresses come from.
enum Symbols {
    /// The recording.
    Text(Vec<u8>),
    /// A list in a file.
    File(std::path::PathBuf),
    /// Nowhere, because.
    None(String),
}

impl RecordedKernel {
    /// The kernel of a recording.
    pub fn new(recording: &Recording, recorded: &Recorded) -> Self {
        let tracing = recording.features.tracing_data.as_ref();
        let build_id = recording.features.build_ids.iter().find(|id| id.path.starts_with("[kernel.kallsyms]"));
        let is_running = build_id.is_some_and(|id| running_build_id().as_deref() == Some(&*id.id));
        let moved = || recording.kernel_start().is_some_and(|start| running_start().is_some_and(|own| own != start));
        let symbols = match (tracing.map(|tracing| &tracing.kallsyms).filter(|text| !text.is_empty()), build_id) {
            (Some(text), _) => Symbols::Text(text.clone()),
            (None, None) => Symbols::None("the recording has no build id of its kernel".to_owned()),
            (None, Some(_)) if is_running && !moved() => Symbols::File("/proc/kallsyms".into()),
            (None, Some(id)) => match recorded.kallsyms(&id.id) {
                Some(list) => Symbols::File(list),
                None if is_running => Symbols::None("the kernel has been loaded elsewhere since".to_owned()),
                None => {
                    Symbols::None("it was another kernel, and perf's cache (~/.debug) has no list of it".to_owned())
                }
            },
        };
        let strings = tracing.map(|tracing| printk_formats::parse(&tracing.printk_formats)).unwrap_or_default();
        let running = Tracefs::find().ok().filter(|_| is_running).map(RunningKernel::new);
        Self { symbols, list: OnceLock::new(), strings, running }
    }

    fn read(&self) -> Option<Kallsyms> {
        let list = match &self.symbols {
            Symbols::Text(text) => Kallsyms::parse(&String::from_utf8_lossy(text)).map_err(|reason| reason.to_string()),
            Symbols::File(path) => Kallsyms::read(path).map_err(|reason| reason.to_string()),
            Symbols::None(why) => Err(why.clone()),
        };
        list.map_err(|why| output::say(format_args!("kernel addresses have no names: {why}"))).ok()
    }
}

impl Kernel for RecordedKernel {
    fn symbol(&self, addr: u64) -> Option<KernelSymbol<'_>> {
        let found = self.list.get_or_init(|| self.read()).as_ref()?.lookup(addr)?;
        let (name, module) = (found.name.into(), found.module.map(Into::into));
        Some(KernelSymbol { name, offset: found.offset, size: found.size, module })
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

/// Where the running kernel's text begins.
fn running_start() -> Option<u64> {
    // The list is long, and made while it is read; the text's begin stands near its head.
    let list = BufReader::new(fs::File::open("/proc/kallsyms").ok()?);
    let mut lines = list.lines().map_while(Result::ok);
    let line = lines.find(|line| line.ends_with(" T _text") || line.ends_with(" T _stext"))?;
    u64::from_str_radix(line.split(' ').next()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
