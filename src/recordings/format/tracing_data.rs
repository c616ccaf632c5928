//! Reads the tracing data of a recording: the kernel's format texts, strings and symbols of tracepoints, in trace-cmd's
//! layout (`tools/perf/util/trace-event-read.c`). The tracing data states its own byte order and word size.

use std::{collections::HashMap, sync::Arc};

use perf_prof_format::tracefs::EventFormat;

use super::bytes::{ByteOrder, ByteReader};

/// The tracing data of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracingData {
    /// The byte order of the recorded machine.
    pub order: ByteOrder,
    /// The size in bytes of a `long` in the recorded kernel.
    pub long_size: u8,
    /// The format texts. Each element consists of the name of the tracepoint's system, and the text. All formats of a
    /// system share one copy of the name, because a name can be longer than all formats of its system.
    pub formats: Vec<(Arc<str>, String)>,
    /// The content of `/proc/kallsyms`. Empty in recordings that perf made, because perf does not store the content.
    pub kallsyms: Vec<u8>,
    /// The content of tracefs's file `printk_formats`.
    pub printk_formats: Vec<u8>,
    /// The content of tracefs's file `saved_cmdlines`; may be empty.
    pub saved_cmdlines: Vec<u8>,
}

const MAGIC: &[u8] = b"\x17\x08\x44tracing";

impl TracingData {
    /// Parses tracing data. If the data is cut off but contains a whole format, returns the part before the cut.
    pub fn parse(bytes: &[u8]) -> Result<TracingData, &'static str> {
        let mut read = ByteReader::new(bytes, ByteOrder::Native);
        if read.read_bytes(MAGIC.len()) != Some(MAGIC) {
            return Err("it does not start with the magic of tracing data");
        }
        let mut tracing = TracingData::default();
        match tracing.fill(read) {
            Some(()) => Ok(tracing),
            None if tracing.formats.is_empty() => Err("it is cut off"),
            None => Ok(tracing),
        }
    }

    fn fill(&mut self, mut read: ByteReader<'_>) -> Option<()> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let version = read.text_to_nul()?;
        let big_endian = read.u8()? != 0;
        self.order = ByteOrder::from_big_endian_flag(big_endian);
        self.long_size = read.u8()?;
        let mut read = ByteReader::new(read.rest(), self.order);
        // Skips the page size and, below, the page layout of ftrace's ring, because they do not apply to perf's rings.
        read.u32()?;
        for header in [&b"header_page"[..], b"header_event"] {
            if read.text_to_nul()? != header {
                return None;
            }
            let size = read.u64()?;
            read.read_bytes_u64(size)?;
        }
        let ftrace: Arc<str> = "ftrace".into();
        for _ in 0..read.u32()? {
            let size = read.u64()?;
            self.formats.push((ftrace.clone(), text(read.read_bytes_u64(size)?)));
        }
        for _ in 0..read.u32()? {
            let system: Arc<str> = text(read.text_to_nul()?).into();
            for _ in 0..read.u32()? {
                let size = read.u64()?;
                self.formats.push((system.clone(), text(read.read_bytes_u64(size)?)));
            }
        }
        let size = read.u32()?;
        self.kallsyms = read.read_bytes(size as usize)?.to_vec();
        let size = read.u32()?;
        self.printk_formats = read.read_bytes(size as usize)?.to_vec();
        // Only version 0.6 and later versions have saved cmdlines.
        if version != b"0.5" {
            let size = read.u64()?;
            self.saved_cmdlines = read.read_bytes_u64(size)?.to_vec();
        }
        Some(())
    }

    /// Returns the formats by tracepoint id. Formats that cannot be parsed are left out.
    pub fn by_id(&self) -> HashMap<u64, EventFormat> {
        let id = |text: &str| text.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok();
        let format = |(system, text): &(Arc<str>, String)| Some((id(text)?, EventFormat::parse_of(system, text).ok()?));
        // If several formats have the same id, the first of them is used. The formats are inserted in reverse order, so
        // the first one replaces the others.
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
    fn all_formats_of_a_system_share_its_name() {
        let mut bytes = section(false, "0.5");
        let many = [&1u32.to_le_bytes()[..], b"sys\0", &2u32.to_le_bytes()].concat();
        let one = [&1u32.to_le_bytes()[..], b"sys\0", &1u32.to_le_bytes()].concat();
        let at = bytes.windows(one.len()).position(|part| part == one).unwrap();
        let other = FORMAT.replace("ID: 7", "ID: 8");
        let other = [&(other.len() as u64).to_le_bytes()[..], other.as_bytes()].concat();
        bytes.splice(at..at + one.len(), many.clone());
        bytes.splice(at + many.len()..at + many.len(), other);
        let formats = TracingData::parse(&bytes).unwrap().by_id();
        assert!(formats.len() == 2 && Arc::ptr_eq(&formats[&7].system, &formats[&8].system));
    }

    #[test]
    fn truncated_tracing_data_gives_its_complete_formats() {
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
