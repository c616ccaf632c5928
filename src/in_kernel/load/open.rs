//! The hash of open spans, which only programs use: how much room it has.

use perf_prof_format::abi::bpf::MapType;
use perf_prof_system::{
    CallError,
    bpf::{Map, MapDefinition},
};

/// The most open spans. A thread has one open call, and is in one state; few machines have more threads. They take 13 MB.
const MOST_OPEN: u32 = 1 << 17;

/// How many spans may be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MostOpen {
    /// The most spans, of which the kernel keeps no more than 131,072. Those of tasks have no other limit.
    pub spans: u32,
    /// The memory that they may take in the kernel, from the start.
    pub bytes: usize,
}

impl MostOpen {
    /// Has an entry for each task, also without an open span.
    pub(super) fn of_tasks(self) -> MostOpen {
        MostOpen { spans: MOST_OPEN, ..self }
    }

    /// Returns for how many entries there is room. `sizes` are those of the key and of the value.
    fn entries(self, sizes: (usize, usize)) -> u32 {
        let fitting = u32::try_from(self.bytes / bytes_of_entry(sizes)).unwrap_or(u32::MAX);
        self.spans.min(MOST_OPEN).min(fitting).max(1)
    }

    /// Creates the hash.
    pub(super) fn hash(self, (key_size, value_size): (usize, usize)) -> Result<Map, CallError> {
        let (name, map_type, flags, inner) = ("open", MapType::Hash, 0, None);
        let entries = self.entries((key_size, value_size));
        Map::new(&MapDefinition { name, map_type, key_size, value_size, entries, flags, inner })
    }
}

/// Returns the memory of an entry of a hash in the kernel. `sizes` are those of the key and of the value.
pub(super) fn bytes_of_entry((key, value): (usize, usize)) -> usize {
    /// The bytes beside both: `struct htab_elem`, and its bucket.
    const BESIDE: usize = 64;
    key + value + BESIDE
}

/// Returns the memory of a hash in the kernel.
pub(super) fn bytes_of_hash(hash: &Map) -> usize {
    hash.entries() as usize * bytes_of_entry((hash.key_size(), hash.value_size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_spans_take_no_more_memory_than_they_may() {
        for (spans, bytes, entries) in [
            (1 << 20, usize::MAX, MOST_OPEN),
            (100, usize::MAX, 100),
            (1 << 20, 112_000, 1000),
            // A hash has room for one entry at least.
            (1 << 20, 0, 1),
        ] {
            assert_eq!(MostOpen { spans, bytes }.entries((16, 32)), entries);
        }
    }
}
