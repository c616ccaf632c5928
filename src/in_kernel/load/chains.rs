//! The maps of call chains in keys.

use std::{collections::HashMap, os::fd::AsFd};

use perf_prof_events::event::AddressChain;
use perf_prof_format::abi::bpf::MapType;
use perf_prof_system::{
    CallError,
    bpf::{Map, MapDefinition},
};

use crate::{
    instruction::MapUse,
    table::{
        Row,
        chain::{BUFFER_BYTES, KEY_BYTES, Segments, VALUE_BYTES},
    },
};

/// The number of segments per row for which there is room.
pub const SEGMENTS: u32 = 2;
const SLOT: u32 = 0;

/// The maps of a table whose keys have call chains.
#[derive(Debug)]
pub struct ChainMaps {
    /// The call chain that a CPU is adding now.
    buffer: Map,
    /// An array with the hash of segments that is filled now.
    slot: Map,
    segments: Map,
    /// The segments of the previous reading. Rows may have chains with these segments, which were added before the hash was
    /// exchanged.
    before: Segments,
}

impl ChainMaps {
    /// Creates the maps for a table with room for this many rows.
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
        let segments = hash(rows)?;
        let inner = Some(&segments);
        let slot = MapDefinition { name: "segments", map_type: MapType::ArrayOfMaps, value_size: 4, inner, ..array };
        let slot = Map::new(&slot)?;
        slot.set_descriptor(SLOT, segments.as_fd())?;
        Ok(ChainMaps { buffer: Map::new(&array)?, slot, segments, before: Segments::default() })
    }

    /// Returns the map for a use.
    pub fn map(&self, map: MapUse) -> Option<&Map> {
        match map {
            MapUse::Chain => Some(&self.buffer),
            MapUse::Segments => Some(&self.slot),
            _ => None,
        }
    }

    /// Returns the memory of the segments that are kept for the next reading.
    pub fn kept_bytes(&self) -> usize {
        self.before.bytes()
    }

    /// Exchanges the hash of segments for an empty one, and returns what was in it. Waits until no program uses it.
    pub fn exchange(&mut self, empty: Map) -> Result<Segments, CallError> {
        self.slot.set_descriptor(SLOT, empty.as_fd())?;
        read(&std::mem::replace(&mut self.segments, empty))
    }

    /// Returns the segments that are in the hash now.
    pub fn segments(&self) -> Result<Segments, CallError> {
        read(&self.segments)
    }

    /// Returns the chains of rows, and keeps the segments for the next reading.
    pub fn chains(&mut self, rows: &[Row], segments: Segments) -> HashMap<u64, AddressChain> {
        let before = std::mem::replace(&mut self.before, segments);
        let ids = rows.iter().filter_map(|row| row.chain).map(|chain| chain.id);
        let chain = |id| Some((id, self.before.chain(id).or_else(|| before.chain(id))?));
        ids.filter_map(chain).collect()
    }
}

/// Creates an empty hash of the segments of this many rows.
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

fn read(hash: &Map) -> Result<Segments, CallError> {
    let mut segments = Segments::default();
    hash.for_each(|key, value| segments.add(key, value))?;
    Ok(segments)
}
