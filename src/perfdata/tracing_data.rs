//! What a recording says of its tracepoints: the kernel's format texts, strings and symbols, in the layout that trace-cmd
//! made (`tools/perf/util/trace-event-read.c`). It has a byte order and word size of its own.

use std::collections::HashMap;

use super::bytes::{ByteOrder, Bytes};
use crate::tracefs::EventFormat;

/// The tracing data of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracingData {
    /// The byte order of the traced machine.
    pub order: ByteOrder,
    /// The size of its kernel's `long`.
    pub long_size: u8,
    /// The format texts, each with its system.
    pub formats: Vec<(String, String)>,
    /// `/proc/kallsyms`, or nothing: perf leaves it out.
    pub kallsyms: Vec<u8>,
    /// tracefs' `printk_formats`.
    pub printk_formats: Vec<u8>,
    /// tracefs' `saved_cmdlines`, or nothing.
    pub saved_cmdlines: Vec<u8>,
}

const MAGIC: &[u8] = b"\x17\x08\x44tracing";

impl TracingData {
    /// Parses the section. What is cut off is left out, as long as it begins right.
    pub fn parse(bytes: &[u8]) -> Result<TracingData, &'static str> {
        let mut read = Bytes::new(bytes, ByteOrder::Native);
        if read.take(MAGIC.len()) != Some(MAGIC) {
            return Err("it does not begin as tracing data do");
        }
        let mut tracing = TracingData::default();
        match tracing.fill(read) {
            Some(()) => Ok(tracing),
            None if tracing.formats.is_empty() => Err("it is cut off"),
            None => Ok(tracing),
        }
    }

    fn fill(&mut self, mut read: Bytes<'_>) -> Option<()> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let version = read.text_to_nul()?;
        let big_endian = read.u8()? != 0;
        self.order = ByteOrder::of_big_endian(big_endian);
        self.long_size = read.u8()?;
        let mut read = Bytes::new(read.rest(), self.order);
        // The page size, and how pages of ftrace's own ring look: perf's rings have none.
        read.u32()?;
        for header in [&b"header_page"[..], b"header_event"] {
            if read.text_to_nul()? != header {
                return None;
            }
            let size = read.u64()?;
            read.take_u64(size)?;
        }
        for _ in 0..read.u32()? {
            let size = read.u64()?;
            self.formats.push(("ftrace".to_owned(), text(read.take_u64(size)?)));
        }
        for _ in 0..read.u32()? {
            let system = text(read.text_to_nul()?);
            for _ in 0..read.u32()? {
                let size = read.u64()?;
                self.formats.push((system.clone(), text(read.take_u64(size)?)));
            }
        }
        let size = read.u32()?;
        self.kallsyms = read.take(size as usize)?.to_vec();
        let size = read.u32()?;
        self.printk_formats = read.take(size as usize)?.to_vec();
        // Since version 0.6.
        if version != b"0.5" {
            let size = read.u64()?;
            self.saved_cmdlines = read.take_u64(size)?.to_vec();
        }
        Some(())
    }

    /// The formats by the ids of their tracepoints; what cannot be understood is left out.
    pub fn by_id(&self) -> HashMap<u64, EventFormat> {
        let id = |text: &str| text.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok();
        let format = |(system, text): &(String, String)| Some((id(text)?, EventFormat::parse(system, text).ok()?));
        // Of several with one id the first is meant.
        self.formats.iter().rev().filter_map(format).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str =
        "name: e\nID: 7\nformat:\n\tfield:int x;\toffset:8;\tsize:4;\tsigned:1;\n\nprint fmt: \"%d\", REC->x\n";

    fn section(big: bool, version: &str) -> Vec<u8> {
        let u32s = |value: usize| if big { (value as u32).to_be_bytes() } else { (value as u32).to_le_bytes() };
        let u64s = |value: usize| if big { (value as u64).to_be_bytes() } else { (value as u64).to_le_bytes() };
        let mut bytes = [MAGIC, version.as_bytes(), &[0, u8::from(big), 8], &u32s(4096)].concat();
        for header in ["header_page\0", "header_event\0"] {
            bytes.extend([header.as_bytes(), &u64s(2), b"xy"].concat());
        }
        bytes.extend([&u32s(0)[..], &u32s(1), b"sys\0", &u32s(1), &u64s(FORMAT.len()), FORMAT.as_bytes()].concat());
        bytes.extend([&u32s(0)[..], &u32s(3), b"pf\n"].concat());
        if version == "0.6" {
            bytes.extend([&u64s(4)[..], b"1 a\n"].concat());
        }
        bytes
    }

    #[test]
    fn both_byte_orders_and_versions() {
        for (big, version) in [(false, "0.5"), (true, "0.6")] {
            let tracing = TracingData::parse(&section(big, version)).unwrap();
            let formats = tracing.by_id();
            let format = &formats[&7];
            assert_eq!((&*format.system, &*format.name, format.fields().len()), ("sys", "e", 1));
            assert_eq!(
                (&*tracing.printk_formats, tracing.saved_cmdlines.len()),
                (&b"pf\n"[..], if big { 4 } else { 0 })
            );
            assert_eq!(formats.len(), 1);
        }
    }

    #[test]
    fn cut_off_anywhere_it_gives_what_is_whole() {
        let whole = section(false, "0.6");
        let mut formats = 0;
        for cut in 0..whole.len() {
            match TracingData::parse(&whole[..cut]) {
                Ok(tracing) => formats = tracing.formats.len(),
                Err(_) => assert_eq!(formats, 0, "{cut}"),
            }
        }
        assert_eq!(formats, 1);
    }
}
