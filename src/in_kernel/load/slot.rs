//! A slot: an array with one element, the hash map that programs fill. Another hash map can take its place.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    sync::Arc,
    thread::{self, JoinHandle},
};

use perf_prof_format::abi::bpf::MapType;
use perf_prof_system::{
    CallError,
    bpf::{Map, MapDefinition},
    own_threads,
};

const INDEX: u32 = 0;

/// A slot, and the hash map in it.
#[derive(Debug)]
pub struct Slot {
    array: Arc<Map>,
    inner: Arc<Map>,
    filling: Option<JoinHandle<Result<(), CallError>>>,
}

impl Slot {
    /// Creates a slot with a hash map in it.
    ///
    /// The kernel puts the map into the slot at once, but the call returns only about 10 ms later: the kernel waits until no
    /// program uses the previous map (`maybe_wait_bpf_programs()` in kernel/bpf/syscall.c), even if there was none. So
    /// another thread makes the call, and the start of a run is not delayed.
    pub fn new(name: &str, inner: Map) -> Result<Slot, CallError> {
        let (map_type, key_size, value_size, entries, flags) = (MapType::ArrayOfMaps, 4, 4, 1, 0);
        let inner_definition = Some(&inner);
        let array =
            Map::new(&MapDefinition { name, map_type, key_size, value_size, entries, flags, inner: inner_definition })?;
        let mut slot = Slot { array: Arc::new(array), inner: Arc::new(inner), filling: None };
        match slot.fill_in_a_thread() {
            Ok(filling) => slot.filling = Some(filling),
            Err(_) => slot.array.set_descriptor(INDEX, slot.inner.as_fd())?,
        }
        Ok(slot)
    }

    fn fill_in_a_thread(&self) -> io::Result<JoinHandle<Result<(), CallError>>> {
        let (array, inner) = (self.array.clone(), self.inner.clone());
        own_threads::spawn("perf-prof-table", move || array.set_descriptor(INDEX, inner.as_fd()))
    }

    /// Waits until programs find the hash map in the slot.
    pub fn wait_until_filled(&mut self) -> Result<(), CallError> {
        while self.filling.as_ref().is_some_and(|filling| !filling.is_finished()) {
            if self.array.get(&INDEX.to_ne_bytes())?.is_some() {
                return Ok(());
            }
            thread::yield_now();
        }
        self.join()
    }

    fn join(&mut self) -> Result<(), CallError> {
        let result = self.filling.take().map(JoinHandle::join);
        result.map_or(Ok(()), |result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }

    /// Returns the hash map in the slot.
    pub fn inner(&self) -> &Map {
        &self.inner
    }

    /// Returns the file descriptor of the slot, for programs.
    pub fn descriptor(&self) -> u32 {
        self.array.as_fd().as_raw_fd() as u32
    }

    /// Puts another hash map into the slot, and returns the previous one. Waits until no program uses the previous one.
    pub fn exchange(&mut self, next: Map) -> Result<Arc<Map>, CallError> {
        self.join()?;
        self.array.set_descriptor(INDEX, next.as_fd())?;
        Ok(std::mem::replace(&mut self.inner, Arc::new(next)))
    }
}
