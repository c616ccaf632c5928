//! The maps of a table whose keys contain call chains.

use std::{
    collections::HashMap,
    os::fd::{AsFd, AsRawFd},
    sync::Arc,
};

use perf_prof_events::event::AddressChain;
use perf_prof_format::abi::bpf::MapType;
use perf_prof_system::{
    CallError,
    bpf::{Map, MapDefinition},
};

use super::slot::Slot;
use crate::{
    instruction::MapUse,
    table::{
        Row,
        chain::{BUFFER_BYTES, KEY_BYTES, Segments, VALUE_BYTES},
    },
};

/// How many segments per row the hash of segments can hold.
pub const SEGMENTS: u32 = 2;

/// The maps of a table whose keys contain call chains.
#[derive(Debug)]
pub struct ChainMaps {
    /// A per-CPU array: the call chain that a program on this CPU is adding.
    buffer: Map,
    /// The hash of segments that programs fill.
    slot: Slot,
    /// The segments of the previous reading. If the chain of a new row was added before the exchange, the chain may consist
    /// of these segments.
    before: Segments,
}

impl ChainMaps {
    /// Creates the maps for a table of at most `rows` rows.
    pub fn new(rows: u32) -> Result<ChainMaps, CallError> {
        let array = MapDefinition {
            name: "chain",
            map_type: MapType::PerCpuArray,
            key_size: 4,
            value_size: BUFFER_BYTES,
            entries: 1,
            flags: 0,
            inner: None,
        };
        let slot = Slot::new("segments", hash(rows)?)?;
        Ok(ChainMaps { buffer: Map::new(&array)?, slot, before: Segments::default() })
    }

    /// Waits until programs find the hash of segments.
    pub fn wait_until_filled(&mut self) -> Result<(), CallError> {
        self.slot.wait_until_filled()
    }

    /// Returns the file descriptor of the map for a use.
    pub fn descriptor(&self, map: MapUse) -> Option<u32> {
        match map {
            MapUse::Chain => Some(self.buffer.as_fd().as_raw_fd() as u32),
            MapUse::Segments => Some(self.slot.descriptor()),
            _ => None,
        }
    }

    /// Returns the memory, in bytes, of the segments that are kept for the next reading.
    pub fn kept_bytes(&self) -> usize {
        self.before.bytes()
    }

    /// Replaces the hash of segments by an empty one, and returns the old hash. Waits until no program uses it.
    pub fn exchange(&mut self, empty: Map) -> Result<Arc<Map>, CallError> {
        self.slot.exchange(empty)
    }

    /// Returns the hash of segments that programs fill.
    pub fn in_use(&self) -> &Map {
        self.slot.inner()
    }

    /// Returns the chains of these rows. Keeps the segments for the next reading.
    pub fn chains(&mut self, rows: &[Row], segments: Segments) -> HashMap<u64, AddressChain> {
        let before = std::mem::replace(&mut self.before, segments);
        let ids = rows.iter().filter_map(|row| row.chain).map(|chain| chain.id);
        let chain = |id| Some((id, self.before.chain(id).or_else(|| before.chain(id))?));
        ids.filter_map(chain).collect()
    }
}

/// Creates an empty hash for the segments of this many rows.
pub fn hash(rows: u32) -> Result<Map, CallError> {
    Map::new(&MapDefinition {
        name: "segments",
        map_type: MapType::Hash,
        key_size: KEY_BYTES,
        value_size: VALUE_BYTES,
        entries: rows.saturating_mul(SEGMENTS),
        flags: 0,
        inner: None,
    })
}

/// Reads the segments in these hashes.
pub fn read<'a>(mut hashes: impl Iterator<Item = &'a Map>) -> Result<Segments, CallError> {
    let mut segments = Segments::default();
    hashes.try_for_each(|hash| hash.for_each(|key, value| segments.add(key, value)))?;
    Ok(segments)
}
