//! The event `perf-prof:trigger` in a dump. Its sample says when and why the dump was made. The event looks like a
//! tracepoint, so all readers of recordings show it.

use perf_prof_format::{
    abi::{PERF_SAMPLE_RAW, PERF_TYPE_TRACEPOINT, perf_event_attr},
    record::{EventAttr, RecordTooLarge, SampleLayout, SampleValues},
};

/// The system of the event.
pub const SYSTEM: &str = "perf-prof";

/// The tracepoint id of the event. The kernel numbers its tracepoints from 1 on, and has a few thousand of them.
const TRACEPOINT_ID: u16 = u16::MAX;

/// The id of the event in its samples. The kernel numbers perf events from 1 on.
const PERF_ID: u64 = u64::MAX - 1;

/// The maximum length of a text in the sample, in bytes.
const LONGEST_TEXT: usize = 4096;

/// The format, as tracefs would show it.
pub const FORMAT: &str = "name: trigger
ID: 65535
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:__data_loc char[] reason;\toffset:8;\tsize:4;\tsigned:0;
\tfield:__data_loc char[] event;\toffset:12;\tsize:4;\tsigned:0;
\tfield:u64 kept_ns;\toffset:16;\tsize:8;\tsigned:0;

print fmt: \"%s: %s (kept %llu ns)\", __get_str(reason), __get_str(event), REC->kept_ns
";

/// The offset of the texts: after the fixed fields.
const TEXTS: usize = 24;

/// Why a dump was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// The reason in one word, such as `fsync` or `signal`. The file name contains this word.
    pub reason: String,
    /// The text of the event or span that caused the dump. Empty if another reason caused it.
    pub event: String,
    /// The time, in nanoseconds of the events' clock.
    pub time: u64,
    /// The process id and the thread id of the task.
    pub task: (u32, u32),
    /// The CPU.
    pub cpu: u32,
}

impl Trigger {
    /// Returns a text about the trigger for messages.
    pub fn text(&self) -> String {
        let colon = if self.event.is_empty() { "" } else { ": " };
        format!("{}{colon}{}", self.reason, self.event)
    }
}

/// Returns the attr of the event. `like` is the attr of another event of the recording, with the same clock.
pub fn attr(like: &EventAttr) -> EventAttr {
    let mut attr = perf_event_attr {
        type_: PERF_TYPE_TRACEPOINT,
        config: TRACEPOINT_ID.into(),
        sample_type: like.attr.sample_type | PERF_SAMPLE_RAW,
        read_format: like.attr.read_format,
        clockid: like.attr.clockid,
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = 1;
    attr.set_sample_id_all(1);
    attr.set_use_clockid(like.attr.use_clockid());
    EventAttr { name: format!("{SYSTEM}:trigger"), attr, ids: vec![PERF_ID], ..EventAttr::default() }
}

/// Returns the sample of a trigger. `kept_ns` is the time before the trigger for which the rings contain all samples,
/// in ns.
pub fn sample(of: &EventAttr, trigger: &Trigger, kept_ns: u64) -> Result<Vec<u8>, RecordTooLarge> {
    let mut raw = TRACEPOINT_ID.to_ne_bytes().to_vec();
    raw.extend([0; 2]);
    raw.extend(trigger.task.1.to_ne_bytes());
    let texts = [&trigger.reason, &trigger.event].map(|text| shortened(text));
    let mut at = TEXTS;
    for text in texts {
        let size = text.len() + 1;
        raw.extend(((size as u32) << 16 | at as u32).to_ne_bytes());
        at += size;
    }
    raw.extend(kept_ns.to_ne_bytes());
    texts.iter().for_each(|text| raw.extend([text.as_bytes(), &[0]].concat()));
    let (pid, tid) = (trigger.task.0 as i32, trigger.task.1 as i32);
    let values = SampleValues {
        id: PERF_ID,
        pid,
        tid,
        time: trigger.time,
        cpu: trigger.cpu,
        period: 1,
        raw,
        ..SampleValues::default()
    };
    SampleLayout::new(of.attr.sample_type, of.attr.read_format).encode(&values)
}

fn shortened(text: &str) -> &str {
    let end = (0..=LONGEST_TEXT.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use perf_prof_format::{
        abi::{PERF_SAMPLE_CPU, PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_IP, PERF_SAMPLE_TID, PERF_SAMPLE_TIME},
        tracefs::{EventFormat, NoKernel},
    };

    use super::*;

    #[test]
    fn a_sample_reads_back_by_the_format() {
        let mut like = EventAttr::default();
        like.attr.sample_type =
            PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU;
        let of = attr(&like);
        let event = "ü".repeat(LONGEST_TEXT);
        let trigger = Trigger { reason: "fsync".to_owned(), event, time: 5, task: (7, 8), cpu: 1 };
        let record = sample(&of, &trigger, 9).unwrap();
        let layout = SampleLayout::new(of.attr.sample_type, 0);
        assert_eq!(
            (layout.time(&record), layout.id(&record), layout.pid_tid(&record)),
            (Some(5), Some(PERF_ID), Some((7, 8)))
        );
        let format = EventFormat::parse(SYSTEM, FORMAT).unwrap();
        let mut text = Vec::new();
        format.render(layout.raw(&record).unwrap_or_default(), &NoKernel, &mut text);
        let expected = format!("fsync: {} (kept 9 ns)", "ü".repeat(LONGEST_TEXT / 2));
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
