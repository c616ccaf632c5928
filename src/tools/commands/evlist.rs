//! `perf-prof evlist`: lists the events of a recording and how they were recorded. Reads no records.

use std::{
    io::{self, Write},
    path::Path,
};

use anyhow::{Context as _, Result};
use perf_prof_events::event::Format;
use perf_prof_format::{abi::*, record::SampleMember};
use perf_prof_recordings::{AttrFlag, ReadLimits, RecordedEvent};
use perf_prof_session::recording::{open, select};
use perf_prof_system::{output, terminal::ShownOnStdout};
use serde_json::{Value as Json, json};

/// How events are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventListing {
    /// Only the names of the events.
    #[default]
    Names,
    /// Also the members of the samples, and how often the events are sampled.
    Attrs,
    /// All attributes as JSON, for programs.
    Json,
}

/// Prints the events of a recording.
pub fn run(path: &Path, limits: &ReadLimits, shown: EventListing) -> Result<()> {
    let recording = open::open_header(path, limits)?;
    recording.warnings.iter().for_each(|warning| output::say(format_args!("warning: {warning}")));
    let formats: Vec<Format> = recording.events.iter().map(select::format).collect();
    let names = recording.events.iter().zip(&formats).map(|(event, format)| {
        // The recorded name includes the modifiers, which the format lacks.
        event.name.clone().unwrap_or_else(|| format.name())
    });
    let events: Vec<(String, &RecordedEvent)> = names.zip(&recording.events).collect();
    let mut out = ShownOnStdout::new(io::stdout().lock());
    let written = match shown {
        EventListing::Names => events.iter().try_for_each(|(name, _)| writeln!(out, "{name}")),
        EventListing::Attrs => events.iter().try_for_each(|(name, event)| writeln!(out, "{name}: {}", attrs(event))),
        EventListing::Json => {
            let events: Vec<Json> = events.iter().map(|(name, event)| of_event(name, event)).collect();
            writeln!(out, "{}", serde_json::to_string_pretty(&events)?)
        }
    };
    written.and_then(|()| out.flush()).context("cannot write the output")
}

fn kind_name(kind: u32) -> Option<&'static str> {
    const NAMES: [(u32, &str); 6] = [
        (PERF_TYPE_HARDWARE, "hardware"),
        (PERF_TYPE_SOFTWARE, "software"),
        (PERF_TYPE_TRACEPOINT, "tracepoint"),
        (PERF_TYPE_HW_CACHE, "hw_cache"),
        (PERF_TYPE_RAW, "raw"),
        (PERF_TYPE_BREAKPOINT, "breakpoint"),
    ];
    NAMES.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name)
}

/// Returns the names of the members that an event's samples contain.
fn members(event: &RecordedEvent) -> Vec<&'static str> {
    // `pid` and `tid` share one bit, so only `tid` is listed.
    let members =
        SampleMember::of_sample_type(event.attr.format.sample_type).filter(|member| *member != SampleMember::Pid);
    members.map(SampleMember::name).collect()
}

/// Returns the names of the values in a reading of an event's counter (PERF_FORMAT_*).
fn read_format(event: &RecordedEvent) -> Vec<&'static str> {
    const NAMES: [(u64, &str); 5] = [
        (PERF_FORMAT_TOTAL_TIME_ENABLED, "total_time_enabled"),
        (PERF_FORMAT_TOTAL_TIME_RUNNING, "total_time_running"),
        (PERF_FORMAT_ID, "id"),
        (PERF_FORMAT_GROUP, "group"),
        (PERF_FORMAT_LOST, "lost"),
    ];
    NAMES.iter().filter(|(bit, _)| event.attr.format.read_format & bit != 0).map(|(_, name)| *name).collect()
}

/// The flags of `struct perf_event_attr`, by their bit numbers.
const FLAGS: [(u32, &str); 38] = [
    (0, "disabled"),
    (1, "inherit"),
    (2, "pinned"),
    (3, "exclusive"),
    (4, "exclude_user"),
    (5, "exclude_kernel"),
    (6, "exclude_hv"),
    (7, "exclude_idle"),
    (8, "mmap"),
    (9, "comm"),
    (10, "freq"),
    (11, "inherit_stat"),
    (12, "enable_on_exec"),
    (13, "task"),
    (14, "watermark"),
    (15, "precise_ip:1"),
    (16, "precise_ip:2"),
    (17, "mmap_data"),
    (18, "sample_id_all"),
    (19, "exclude_host"),
    (20, "exclude_guest"),
    (21, "exclude_callchain_kernel"),
    (22, "exclude_callchain_user"),
    (23, "mmap2"),
    (24, "comm_exec"),
    (25, "use_clockid"),
    (26, "context_switch"),
    (27, "write_backward"),
    (28, "namespaces"),
    (29, "ksymbol"),
    (30, "bpf_event"),
    (31, "aux_output"),
    (32, "cgroup"),
    (33, "text_poke"),
    (34, "build_id"),
    (35, "inherit_thread"),
    (36, "remove_on_exec"),
    (37, "sigtrap"),
];

fn flags(event: &RecordedEvent) -> Vec<&'static str> {
    FLAGS.iter().filter(|(bit, _)| event.attr.flags >> bit & 1 != 0).map(|(_, name)| *name).collect()
}

fn attrs(event: &RecordedEvent) -> String {
    let attr = &event.attr;
    let kind = kind_name(attr.kind).map_or_else(|| attr.kind.to_string(), str::to_owned);
    let mut text = format!("{kind}, config {:#x}", attr.config);
    for (name, value) in [("config1", attr.config1), ("config2", attr.config2)] {
        if value != 0 {
            text += &format!(", {name} {value:#x}");
        }
    }
    text += &match (attr.sample_period, attr.has(AttrFlag::Freq)) {
        (0, _) => ", not sampled".to_owned(),
        (hz, true) => format!(", {hz} samples per second"),
        (1, false) => ", each event sampled".to_owned(),
        (period, false) => format!(", one in {period} sampled"),
    };
    for (title, names) in
        [("samples hold", members(event)), ("counters hold", read_format(event)), ("flags", flags(event))]
    {
        if !names.is_empty() {
            text += &format!("; {title} {}", names.join(" "));
        }
    }
    if attr.format.regs_user != 0 {
        text += &format!("; user registers {:#x}", attr.format.regs_user);
    }
    if attr.format.regs_intr != 0 {
        text += &format!("; registers {:#x}", attr.format.regs_intr);
    }
    if attr.sample_stack_user != 0 {
        text += &format!("; {} bytes of user stacks", attr.sample_stack_user);
    }
    text
}

fn of_event(name: &str, event: &RecordedEvent) -> Json {
    let attr = &event.attr;
    let is_frequency = attr.has(AttrFlag::Freq);
    json!({
        "name": name,
        "type": kind_name(attr.kind).map_or_else(|| json!(attr.kind), |name| json!(name)),
        "config": attr.config,
        "config1": attr.config1,
        "config2": attr.config2,
        "period": (!is_frequency).then_some(attr.sample_period),
        "frequency": is_frequency.then_some(attr.sample_period),
        "sample_type": members(event),
        "read_format": read_format(event),
        "flags": flags(event),
        "ids": event.ids,
    })
}

#[cfg(test)]
mod tests {
    use perf_prof_format::record::SampleFormat;
    use perf_prof_recordings::Attr;

    use super::*;

    #[test]
    fn attrs_are_shown_in_words() {
        let sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_CALLCHAIN;
        let format = SampleFormat { sample_type, read_format: PERF_FORMAT_ID | PERF_FORMAT_LOST, ..Default::default() };
        let attr =
            Attr { kind: PERF_TYPE_SOFTWARE, sample_period: 4000, flags: 1 << 10 | 2, format, ..Attr::default() };
        let event = RecordedEvent { attr, ids: vec![7], name: None, format: None, has_interpreter_frames: false };
        assert_eq!(
            attrs(&event),
            "software, config 0x0, 4000 samples per second; samples hold ip tid callchain; counters hold id lost; \
             flags inherit freq"
        );
        assert_eq!(of_event("x", &event)["frequency"], 4000);
        assert_eq!(of_event("x", &event)["period"], Json::Null);
    }
}
