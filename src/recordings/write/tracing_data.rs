//! Writes the formats of tracepoints in trace-cmd's layout, which perf uses too.
//!
//! Source: `tools/perf/util/trace-event-info.c` and `trace-event-read.c` in the Linux tree.

use std::collections::BTreeMap;

/// The texts from tracefs that a reader needs for the tracepoints of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracingData {
    /// The size of a page in ftrace's ring, in bytes.
    pub page_size: u32,
    /// The content of the file `events/header_page`.
    pub header_page: Vec<u8>,
    /// The content of the file `events/header_event`.
    pub header_event: Vec<u8>,
    /// The format texts of the events, by system.
    pub formats: BTreeMap<String, Vec<Vec<u8>>>,
    /// The content of the file `printk_formats`: the kernel's constant strings and their addresses. Events contain only
    /// the addresses of these strings.
    pub printk_formats: Vec<u8>,
    /// The content of the file `saved_cmdlines`: the names of tasks.
    pub saved_cmdlines: Vec<u8>,
}

impl TracingData {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend([23, 8, 68]);
        out.extend(b"tracing0.6\0");
        out.extend([u8::from(cfg!(target_endian = "big")), size_of::<usize>() as u8]);
        out.extend(self.page_size.to_ne_bytes());
        out.extend(b"header_page\0");
        sized(out, &self.header_page);
        out.extend(b"header_event\0");
        sized(out, &self.header_event);
        let (ftrace, others): (Vec<_>, Vec<_>) = self.formats.iter().partition(|(system, _)| *system == "ftrace");
        // The formats of the system `ftrace` come first. The name of this system is not written.
        formats(out, ftrace.first().map_or(&[], |(_, formats)| formats));
        count(out, others.len());
        for (system, of_system) in others {
            out.extend(system.as_bytes());
            out.push(0);
            formats(out, of_system);
        }
        // kallsyms stays empty, because readers do not need it: the build id of the kernel is in another feature.
        count(out, 0);
        count(out, self.printk_formats.len());
        out.extend(&self.printk_formats);
        sized(out, &self.saved_cmdlines);
    }
}

fn formats(out: &mut Vec<u8>, formats: &[Vec<u8>]) {
    count(out, formats.len());
    formats.iter().for_each(|format| sized(out, format));
}

fn count(out: &mut Vec<u8>, count: usize) {
    out.extend((count as u32).to_ne_bytes());
}

fn sized(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u64).to_ne_bytes());
    out.extend(text);
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn the_layout_is_perfs() {
        let formats = [("sched", &b"A"[..]), ("ftrace", b"BB")];
        let data = TracingData {
            page_size: 4096,
            header_page: b"page".to_vec(),
            header_event: b"event".to_vec(),
            formats: formats.into_iter().map(|(system, text)| (system.to_owned(), vec![text.to_vec()])).collect(),
            printk_formats: b"0x1 : \"x\"\n".to_vec(),
            saved_cmdlines: Vec::new(),
        };
        let mut out = Vec::new();
        data.write(&mut out);
        if cfg!(all(target_endian = "little", target_pointer_width = "64")) {
            expect![[r#"\x17\x08Dtracing0.6\x00\x00\x08\x00\x10\x00\x00header_page\x00\x04\x00\x00\x00\x00\x00\x00\x00pageheader_event\x00\x05\x00\x00\x00\x00\x00\x00\x00event\x01\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00BB\x01\x00\x00\x00sched\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00A\x00\x00\x00\x00\n\x00\x00\x000x1 : \"x\"\n\x00\x00\x00\x00\x00\x00\x00\x00"#]]
                .assert_eq(&out.escape_ascii().to_string());
        }
    }
}
