//! The packets of a trace. The messages and field numbers are those of `protos/perfetto/trace/` in Perfetto, without the
//! fields that perf-prof never writes.

use std::io::{self, Write};

use prost::{
    Message,
    encoding::{WireType, encode_key, encode_varint},
};

use super::kernel::{ClockSnapshot, FtraceEventBundle, ProcessTree, SystemInfo};
use crate::picture::timeline::Argument;

/// A packet of a trace (`trace_packet.proto`).
#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    #[prost(message, optional, tag = "1")]
    pub ftrace_events: Option<FtraceEventBundle>,
    #[prost(message, optional, tag = "2")]
    pub process_tree: Option<ProcessTree>,
    #[prost(message, optional, tag = "6")]
    pub clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "45")]
    pub system_info: Option<SystemInfo>,
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
}

/// All packets of a trace, for tests.
#[cfg(test)]
#[derive(Clone, PartialEq, Message)]
pub struct Trace {
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

/// An event on a track (`track_event.proto`).
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    #[prost(enumeration = "EventType", optional, tag = "9")]
    pub r#type: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    pub name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    #[prost(int64, optional, tag = "30")]
    pub counter_value: Option<i64>,
    #[prost(double, optional, tag = "44")]
    pub double_counter_value: Option<f64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    pub terminating_flow_ids: Vec<u64>,
    #[prost(message, optional, tag = "55")]
    pub callstack: Option<InlineCallstack>,
}

/// The functions on the stack, outermost first (`TrackEvent.InlineCallstack`).
#[derive(Clone, PartialEq, Message)]
pub struct InlineCallstack {
    #[prost(message, repeated, tag = "1")]
    pub frames: Vec<InlineFrame>,
}

#[derive(Clone, PartialEq, Message)]
pub struct InlineFrame {
    #[prost(string, optional, tag = "1")]
    pub function_name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum EventType {
    Unspecified = 0,
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
    Counter = 4,
}

/// An argument of an event (`debug_annotation.proto`).
#[derive(Clone, PartialEq, Message)]
pub struct DebugAnnotation {
    #[prost(uint64, optional, tag = "1")]
    pub name_iid: Option<u64>,
    #[prost(bool, optional, tag = "2")]
    pub bool_value: Option<bool>,
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    #[prost(int64, optional, tag = "4")]
    pub int_value: Option<i64>,
    #[prost(double, optional, tag = "5")]
    pub double_value: Option<f64>,
    #[prost(string, optional, tag = "6")]
    pub string_value: Option<String>,
}

impl DebugAnnotation {
    /// Creates an argument. `name_iid` is the number of its name.
    pub fn new(name_iid: u64, value: &Argument) -> DebugAnnotation {
        let named = DebugAnnotation { name_iid: Some(name_iid), ..DebugAnnotation::default() };
        match value {
            &Argument::Bool(value) => DebugAnnotation { bool_value: Some(value), ..named },
            &Argument::Int(value) => DebugAnnotation { int_value: Some(value), ..named },
            &Argument::Uint(value) => DebugAnnotation { uint_value: Some(value), ..named },
            &Argument::Float(value) => DebugAnnotation { double_value: Some(value), ..named },
            Argument::Text(value) => DebugAnnotation { string_value: Some(value.clone()), ..named },
        }
    }
}

/// Names to which events refer by number (`interned_data.proto`).
#[derive(Clone, PartialEq, Message)]
pub struct InternedData {
    #[prost(message, repeated, tag = "2")]
    pub event_names: Vec<InternedName>,
    #[prost(message, repeated, tag = "3")]
    pub debug_annotation_names: Vec<InternedName>,
}

#[derive(Clone, PartialEq, Message)]
pub struct InternedName {
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}

/// A track (`track_descriptor.proto`).
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    pub thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
}

/// The process of a track (`process_descriptor.proto`).
#[derive(Clone, PartialEq, Message)]
pub struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub process_name: Option<String>,
}

/// The thread of a track (`thread_descriptor.proto`).
#[derive(Clone, PartialEq, Message)]
pub struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    pub tid: Option<i64>,
}

/// A counter without a unit (`counter_descriptor.proto`).
#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {}

/// All packets belong to one sequence, so they share names.
const SEQUENCE: u32 = 1;

/// Flags of packets: the first packet starts a new set of names, and the other packets use it (`TracePacket.SequenceFlags`).
pub const SEQ_INCREMENTAL_STATE_CLEARED: u32 = 1;
pub const SEQ_NEEDS_INCREMENTAL_STATE: u32 = 2;

/// The field number of `packet` in a `Trace`.
const PACKET: u32 = 1;

/// Writes the packets of a trace one after another.
pub struct Packets<'a, W> {
    to: &'a mut W,
    /// The encoded bytes of the current packet.
    bytes: Vec<u8>,
}

impl<'a, W: Write> Packets<'a, W> {
    /// Writes packets to `to`.
    pub fn new(to: &'a mut W) -> Packets<'a, W> {
        Packets { to, bytes: Vec::new() }
    }

    /// Writes a packet.
    pub fn write(&mut self, packet: TracePacket) -> io::Result<()> {
        let packet = TracePacket { trusted_packet_sequence_id: Some(SEQUENCE), ..packet };
        self.bytes.clear();
        encode_key(PACKET, WireType::LengthDelimited, &mut self.bytes);
        encode_varint(packet.encoded_len() as u64, &mut self.bytes);
        packet.encode_raw(&mut self.bytes);
        self.to.write_all(&self.bytes)
    }
}
