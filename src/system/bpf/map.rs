//! BPF maps: memory that BPF programs and this process share.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use perf_prof_format::abi::bpf::{
    BPF_ANY, BPF_F_MMAPABLE, BPF_MAP_CREATE, BPF_MAP_DELETE_ELEM, BPF_MAP_LOOKUP_BATCH, BPF_MAP_LOOKUP_ELEM,
    BPF_MAP_UPDATE_ELEM, BPF_OBJ_NAME_LEN, MapType,
};

use super::{Attr, call, call_for_descriptor, object_name};
use crate::{
    CallError,
    mmap::{Mapping, page_size},
    topology,
};

/// The definition of a map to create.
#[derive(Clone, Copy, Debug)]
pub struct MapDefinition<'a> {
    /// The name that tools such as bpftool show.
    pub name: &'a str,
    /// The type of the map.
    pub map_type: MapType,
    /// The size of a key in bytes. The key of an array is a u32.
    pub key_size: usize,
    /// The size of a value in bytes. In a map of descriptors, a value is a u32.
    pub value_size: usize,
    /// The maximum number of entries. For an array, this is its length.
    pub entries: u32,
    /// The flags of BPF_MAP_CREATE (`BPF_F_*`).
    pub flags: u32,
    /// Only for a map of maps: a map with the definition that all values (inner maps) must have.
    pub inner: Option<&'a Map>,
}

/// A map of this process. The kernel frees the map when no program and no descriptor uses it any more.
#[derive(Debug)]
pub struct Map {
    descriptor: OwnedFd,
    key_size: usize,
    /// The size in bytes of a value as this process reads and writes it. In a per-CPU array, this is the size of the
    /// values of all CPUs together.
    value_size: usize,
    entries: u32,
}

#[repr(C)]
struct Create {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; BPF_OBJ_NAME_LEN],
}

#[repr(C)]
struct Element {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct Batch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

// SAFETY: the structures of BPF_MAP_CREATE, BPF_MAP_*_ELEM and BPF_MAP_*_BATCH, without implicit padding.
unsafe impl Attr for Create {}
// SAFETY: as above.
unsafe impl Attr for Element {}
// SAFETY: as above.
unsafe impl Attr for Batch {}

impl Map {
    /// Creates a map.
    pub fn new(definition: &MapDefinition<'_>) -> Result<Map, CallError> {
        let mut attr = Create {
            map_type: definition.map_type as u32,
            key_size: definition.key_size as u32,
            value_size: definition.value_size as u32,
            max_entries: definition.entries,
            map_flags: definition.flags,
            inner_map_fd: definition.inner.map_or(0, |map| map.descriptor.as_raw_fd() as u32),
            numa_node: 0,
            map_name: object_name(definition.name),
        };
        // SAFETY: the structure has no pointer.
        let descriptor = unsafe { call_for_descriptor("bpf BPF_MAP_CREATE", BPF_MAP_CREATE, &mut attr) }?;
        let value_size = match definition.map_type {
            // For a per-CPU array, the kernel copies the values of all possible CPUs. It rounds the size of each value
            // up to 8 bytes.
            MapType::PerCpuArray => definition.value_size.next_multiple_of(8) * topology::possible_cpus(),
            _ => definition.value_size,
        };
        Ok(Map { descriptor, key_size: definition.key_size, value_size, entries: definition.entries })
    }

    /// Returns the maximum number of entries. For an array, this is its length.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Returns the size of a key in bytes.
    pub fn key_size(&self) -> usize {
        self.key_size
    }

    /// Returns the size in bytes of a value as this process reads and writes it. In a per-CPU array, this is the size
    /// of the values of all CPUs together.
    pub fn value_size(&self) -> usize {
        self.value_size
    }

    /// Returns the value of a key; `None` if the map does not contain the key. For a per-CPU array, returns the values
    /// of all CPUs, one after the other.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, CallError> {
        let mut value = vec![0; self.value_size];
        let mut attr = self.element(key, value.as_mut_ptr(), BPF_ANY);
        // SAFETY: `element` has checked the key's size, and `value` has the size that the kernel writes.
        match unsafe { call("bpf BPF_MAP_LOOKUP_ELEM", BPF_MAP_LOOKUP_ELEM, &mut attr) } {
            Ok(_) => Ok(Some(value)),
            Err(error) if error.errno() == libc::ENOENT => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the value of a key. `flags` is `BPF_ANY`, `BPF_NOEXIST` or `BPF_EXIST`.
    pub fn set(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), CallError> {
        assert_eq!(value.len(), self.value_size, "a value of the map");
        let mut attr = self.element(key, value.as_ptr().cast_mut(), flags);
        // SAFETY: both sizes are checked, and the kernel only reads the value.
        unsafe { call("bpf BPF_MAP_UPDATE_ELEM", BPF_MAP_UPDATE_ELEM, &mut attr) }.map(drop)
    }

    /// Stores the descriptor of a perf event, a cgroup or a map in a map of descriptors. If the values are maps, the
    /// call returns only when no program uses the previous map any more.
    pub fn set_descriptor(&self, index: u32, descriptor: BorrowedFd<'_>) -> Result<(), CallError> {
        self.set(&index.to_ne_bytes(), &descriptor.as_raw_fd().to_ne_bytes(), BPF_ANY)
    }

    /// Removes a key. Returns whether the map contained the key.
    pub fn remove(&self, key: &[u8]) -> Result<bool, CallError> {
        let mut attr = self.element(key, std::ptr::null_mut(), 0);
        // SAFETY: `element` has checked the key's size. The command takes no value.
        match unsafe { call("bpf BPF_MAP_DELETE_ELEM", BPF_MAP_DELETE_ELEM, &mut attr) } {
            Ok(_) => Ok(true),
            Err(error) if error.errno() == libc::ENOENT => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn element(&self, key: &[u8], value: *mut u8, flags: u64) -> Element {
        assert_eq!(key.len(), self.key_size, "a key of the map");
        let map_fd = self.descriptor.as_raw_fd() as u32;
        Element { map_fd, padding: 0, key: key.as_ptr() as u64, value: value as u64, flags }
    }

    /// Calls `entry` with each key and value of a hash. May miss keys that BPF programs insert during the call.
    ///
    /// While the kernel copies entries, it runs no BPF program and writes no tracepoint record for interrupts on this
    /// CPU (`bpf_disable_instrumentation`). So the entries are read in small batches.
    pub fn for_each(&self, mut entry: impl FnMut(&[u8], &[u8])) -> Result<(), CallError> {
        let mut size = BATCH.min(self.entries);
        let mut position = 0u32;
        let mut is_first = true;
        loop {
            let mut keys = vec![0; size as usize * self.key_size];
            let mut values = vec![0; size as usize * self.value_size];
            let mut next = 0u32;
            let mut attr = Batch {
                in_batch: if is_first { 0 } else { &raw mut position as u64 },
                out_batch: &raw mut next as u64,
                keys: keys.as_mut_ptr() as u64,
                values: values.as_mut_ptr() as u64,
                count: size,
                map_fd: self.descriptor.as_raw_fd() as u32,
                elem_flags: 0,
                flags: 0,
            };
            // SAFETY: there is room for `count` keys and values. For a hash, the kernel stores its position as a u32 (a
            // bucket's index).
            let result = unsafe { call("bpf BPF_MAP_LOOKUP_BATCH", BPF_MAP_LOOKUP_BATCH, &mut attr) };
            let is_last = match result {
                Ok(_) => false,
                Err(error) if error.errno() == libc::ENOENT => true,
                // A bucket of the hash contains more entries than the batch has room for.
                Err(error) if error.errno() == libc::ENOSPC && size < self.entries => {
                    size = size.saturating_mul(2).min(self.entries);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let count = attr.count.min(size) as usize;
            let entries = keys.chunks_exact(self.key_size).zip(values.chunks_exact(self.value_size));
            entries.take(count).for_each(|(key, value)| entry(key, value));
            if is_last {
                return Ok(());
            }
            (position, is_first) = (next, false);
        }
    }

    /// Maps this array into the memory of this process. The array must have the flag `BPF_F_MMAPABLE`.
    fn counter_page(&self) -> Result<CounterPage, CallError> {
        let bytes = self.value_size.next_multiple_of(8) * self.entries as usize;
        let mapping = Mapping::map_file(self.descriptor.as_fd(), bytes.next_multiple_of(page_size()))?;
        Ok(CounterPage { mapping, words: bytes / 8 })
    }
}

/// The number of entries that one call of bpf(2) reads. For a hash with more entries in one bucket, the number is
/// increased.
const BATCH: u32 = 1024;

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// An array of u64 counters that is mapped into this process. BPF programs add to the counters, and this process reads
/// them without a system call.
#[derive(Debug)]
pub struct CounterPage {
    mapping: Mapping,
    words: usize,
}

// SAFETY: programs and threads access the words of the mapping only atomically.
unsafe impl Sync for CounterPage {}

impl CounterPage {
    /// Creates an array of `words` counters and maps it.
    pub fn new(name: &str, words: usize) -> Result<(Map, CounterPage), CallError> {
        let map = Map::new(&MapDefinition {
            name,
            map_type: MapType::Array,
            key_size: 4,
            value_size: 8 * words,
            entries: 1,
            flags: BPF_F_MMAPABLE,
            inner: None,
        })?;
        let page = map.counter_page()?;
        Ok((map, page))
    }

    /// Returns the word at an index.
    pub fn word(&self, index: usize) -> u64 {
        self.place(index).load(Relaxed)
    }

    /// Sets the word at an index.
    pub fn set_word(&self, index: usize, value: u64) {
        self.place(index).store(value, Relaxed);
    }

    /// Adds to the word at an index.
    pub fn add_to_word(&self, index: usize, value: u64) {
        self.place(index).fetch_add(value, Relaxed);
    }

    fn place(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.words, "a word of the array");
        // SAFETY: the word is inside the mapping, which starts at a page, so it is aligned. Programs and this process
        // access it atomically.
        unsafe { self.mapping.base().cast::<AtomicU64>().add(index).as_ref() }
    }
}
