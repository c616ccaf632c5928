//! The hash of open spans, and how many entries it can hold. Only programs use it.

use perf_prof_format::abi::bpf::MapType;
use perf_prof_system::{
    CallError,
    bpf::{Map, MapDefinition},
};

/// The maximum number of open spans. A thread has at most one open span, because it is in one call or in one state. Few
/// machines have more threads than this number. This many spans take 13 MB.
const MOST_OPEN: u32 = 1 << 17;

/// The limits of open spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MostOpen {
    /// The maximum number of spans. Even without this limit, at most 131,072 spans are kept. The limit does not hold for
    /// spans of tasks.
    pub spans: u32,
    /// The maximum memory in the kernel, in bytes. The kernel allocates it when the hash is created.
    pub bytes: usize,
}

impl MostOpen {
    /// Returns the limits for spans of tasks: each task has an entry, even without an open span.
    pub(super) fn of_tasks(self) -> MostOpen {
        MostOpen { spans: MOST_OPEN, ..self }
    }

    /// Returns how many entries the hash can hold. `sizes` are the sizes of the key and of the value.
    fn entries(self, sizes: (usize, usize)) -> u32 {
        let fitting = u32::try_from(self.bytes / bytes_of_entry(sizes)).unwrap_or(u32::MAX);
        self.spans.min(MOST_OPEN).min(fitting).max(1)
    }

    pub(super) fn hash(self, (key_size, value_size): (usize, usize)) -> Result<Map, CallError> {
        let (name, map_type, flags, inner) = ("open", MapType::Hash, 0, None);
        let entries = self.entries((key_size, value_size));
        Map::new(&MapDefinition { name, map_type, key_size, value_size, entries, flags, inner })
    }
}

/// Returns the memory that an entry of a hash takes in the kernel. `sizes` are the sizes of the key and of the value.
pub(super) fn bytes_of_entry((key, value): (usize, usize)) -> usize {
    /// The bytes besides key and value: `struct htab_elem`, and a bucket.
    const BESIDE: usize = 64;
    key + value + BESIDE
}

/// Returns the memory that a hash takes in the kernel. An array takes slightly less.
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
            // A hash holds at least one entry.
            (1 << 20, 0, 1),
        ] {
            assert_eq!(MostOpen { spans, bytes }.entries((16, 32)), entries);
        }
    }
}
