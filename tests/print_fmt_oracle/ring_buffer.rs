//! Reads events from the pages of ftrace's ring buffer. `events/header_page` and `events/header_event` describe the
//! layout.

/// The size of a sub-buffer in bytes.
pub const PAGE: usize = 4096;

/// The size of a page's header in bytes: `u64 timestamp; local_t commit;`.
const HEADER: usize = 16;

/// Returns the data of each event, which starts with `common_type`.
pub fn events(pages: &[u8]) -> impl Iterator<Item = &[u8]> {
    pages.chunks_exact(PAGE).flat_map(|page| {
        // The upper bits are flags for lost events.
        let size = u64_at(page, 8) as usize & 0xf_ffff;
        PageEvents { data: &page[HEADER..HEADER + size] }
    })
}

struct PageEvents<'a> {
    data: &'a [u8],
}

impl<'a> Iterator for PageEvents<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            if self.data.len() < 4 {
                return None;
            }
            let header = u32_at(self.data, 0);
            let (kind, delta) = (header & 31, header >> 5);
            let (start, end) = match kind {
                // The length is in the next word, and it includes that word.
                0 => (8, 4 + u32_at(self.data, 4) as usize),
                // The end of the page, or a discarded event.
                29 if delta == 0 => return None,
                29 => (0, 4 + u32_at(self.data, 4) as usize),
                // A full timestamp or a long time difference.
                30 | 31 => (0, 8),
                words => (4, 4 + 4 * words as usize),
            };
            let (event, rest) = self.data.split_at(end.next_multiple_of(4));
            self.data = rest;
            if start > 0 {
                return Some(&event[start..end]);
            }
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(*bytes[at..].first_chunk().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(*bytes[at..].first_chunk().unwrap())
}
