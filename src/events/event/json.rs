//! An event as a JSON object on one line. The object's members have the names that scripts use. Field values are raw. If the
//! print format names a value, the member `_names` contains this name.

use std::{borrow::Cow, fmt::Display, io::Write as _, sync::Arc};

use perf_prof_format::{
    control_characters::in_json,
    record::SampleMember,
    tracefs::{EventFormat, Field},
    value::Value,
};
use serde_json::{Value as Json, json};

use super::{Context, Format, Frame, Origin, Sample, SpanPart, cgroup_text, frames, has_callchain, ip_frame};

/// Appends the object and a line break. `name` is the event's name.
pub fn write_json(name: &str, sample: &Sample<'_>, context: &Context, out: &mut Vec<u8>) {
    let ((pid, tid), time) = (sample.pid_tid(), sample.time());
    out.extend_from_slice(b"{\"_event\":");
    text(name, out);
    member("_time", out);
    number(time, out);
    // Leave out the time of day for recordings: only some commands find it out.
    if let (false, Some(realtime)) = (context.is_recording(), context.realtime(time)) {
        member("_realtime", out);
        number(realtime, out);
    }
    member("_cpu", out);
    number(sample.cpu(), out);
    member("_pid", out);
    number(pid, out);
    member("_tid", out);
    number(tid, out);
    member("_comm", out);
    match context.comm(sample.task(), time) {
        Some(comm) => text(&utf8(&comm), out),
        None => out.extend_from_slice(b"null"),
    }
    if let Some(cgroup) = cgroup_text(sample, context) {
        member("_cgroup", out);
        text(&utf8(&cgroup), out);
    }
    match &sample.event.format {
        Format::Tracepoint(format) => tracepoint(format, sample.raw(), context, out),
        Format::Span(span) => {
            tracepoint(&span.format, sample.raw(), context, out);
            for (name, part) in [("begin", SpanPart::Begin), ("end", SpanPart::End)] {
                if let Some(part) = span.sample(part, sample.raw()).filter(|_| !span.is_source()) {
                    member(name, out);
                    out.extend_from_slice(b"{\"_event\":");
                    text(&part.event.real_name(), out);
                    if let Some(format) = part.event.format.tracepoint() {
                        tracepoint(format, part.raw(), context, out);
                    }
                    out.push(b'}');
                }
            }
        }
        Format::Other(_) => members(sample, context, out),
    }
    if has_callchain(sample) {
        let frames: Vec<_> = frames(sample, context).iter().map(|frame| of_frame(frame)).collect();
        member("_callchain", out);
        object(&Json::Array(frames), out);
    }
    out.extend_from_slice(b"}\n");
}

/// Writes the fields of a tracepoint, and the names of the values.
fn tracepoint(format: &Arc<EventFormat>, raw: &[u8], context: &Context, out: &mut Vec<u8>) {
    for field in format.fields() {
        key(1, &field.name, out);
        of_field(field, raw, out);
    }
    out.extend_from_slice(b",\"_names\":{");
    let (mut count, mut shown) = (0, Vec::new());
    for field in format.fields().iter().filter(|field| field.number().is_some()) {
        shown.clear();
        // The number in another form, such as hexadecimal, is not a name.
        if format.render_field(&field.name, raw, &*context.kernel, &mut shown) && is_name(&shown, field.value(raw)) {
            key(count, &field.name, out);
            text(&utf8(&shown), out);
            count += 1;
        }
    }
    out.push(b'}');
    shown.clear();
    format.render(raw, &*context.kernel, &mut shown);
    member("_text", out);
    text(&utf8(&shown), out);
}

/// Returns whether the text for a number is a name. It is not a name if it is the number in another form, such as
/// hexadecimal. For example, `D` is the name of a task state, unless the number is 13.
fn is_name(shown: &[u8], number: Option<Value<'_>>) -> bool {
    let Ok(shown) = std::str::from_utf8(shown) else { return true };
    let number = match number {
        Some(Value::Int(number)) => number as u64,
        Some(Value::Uint(number)) => number,
        _ => return false,
    };
    let is_hexadecimal = || u64::from_str_radix(shown, 16).is_ok_and(|shown| shown == number);
    !shown.is_empty() && shown.parse::<i128>().is_err() && !shown.starts_with("0x") && !is_hexadecimal()
}

fn of_field(field: &Field, raw: &[u8], out: &mut Vec<u8>) {
    match field.array(raw) {
        Some(elements) => {
            out.push(b'[');
            for (at, element) in elements.enumerate() {
                out.extend_from_slice(if at > 0 { b"," } else { b"" });
                scalar(element, out);
            }
            out.push(b']');
        }
        None => match field.value(raw) {
            Some(found) => scalar(found, out),
            None => out.extend_from_slice(b"null"),
        },
    }
}

/// Writes the members of an event that is not a tracepoint: numbers, data, and the function of the instruction. Leaves out
/// copied stacks and registers, which are for unwinding.
fn members(sample: &Sample<'_>, context: &Context, out: &mut Vec<u8>) {
    for of in sample.event.own_members().filter(|of| *of != SampleMember::StackUser) {
        if let Some(found) = sample.event.layout.value(of, sample.record) {
            member(of.name(), out);
            scalar(found, out);
        }
    }
    if let Some(frame) = ip_frame(sample, context) {
        member("_ip", out);
        object(&of_frame(&frame), out);
    }
}

fn of_frame(Frame { addr, symbol, offset, origin, dso, srcline, .. }: &Frame) -> Json {
    let is_inlined = matches!(origin, Origin::Inlined { .. });
    let is_kernel = *origin == Origin::Kernel;
    let mut object = json!({
        "addr": addr, "symbol": **symbol, "offset": offset, "kernel": is_kernel, "dso": **dso, "inlined": is_inlined
    });
    if matches!(origin, Origin::Python { .. }) {
        object["python"] = true.into();
        object["line"] = srcline.as_ref().map(|(_, line)| *line).into();
    }
    object
}

fn scalar(found: Value<'_>, out: &mut Vec<u8>) {
    match found {
        Value::Bool(found) => number(found, out),
        Value::Int(found) => number(found, out),
        Value::Uint(found) => number(found, out),
        Value::Str(found) => text(&utf8(found), out),
        Value::Bytes(found) | Value::Words(found) => {
            text(&found.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), out)
        }
    }
}

/// Returns bytes as UTF-8, which JSON requires. Bytes that are not valid UTF-8 become U+FFFD.
fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Appends the key of an object's member. `at` is the number of members that the object already has.
fn key(at: usize, name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(if at > 0 { b"," } else { b"" });
    text(name, out);
    out.push(b':');
}

/// Appends the key of a member that is not the first one. `name` must contain no character that JSON has to escape.
fn member(name: &str, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, ",\"{name}\":");
}

fn number(number: impl Display, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{number}");
}

fn text(text: &str, out: &mut Vec<u8>) {
    if text.is_ascii() {
        // Any text can be written as JSON, and writing to a Vec cannot fail.
        let _ = serde_json::to_writer(out, text);
    } else {
        object(&text.into(), out);
    }
}

fn object(object: &Json, out: &mut Vec<u8>) {
    out.extend_from_slice(in_json(&object.to_string()).as_bytes());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perf_prof_format::{
        abi::{PERF_SAMPLE_RAW, PERF_SAMPLE_TID},
        record::SampleLayout,
        tracefs::{EventFormat, NoKernel},
    };

    use super::*;
    use crate::event::EventType;

    /// The kernel has removed the ids of an exiting thread. All outputs have the ids of the record.
    #[test]
    fn an_exiting_thread_has_the_ids_of_its_sample() {
        let format = EventFormat::parse(
            "s",
            "name: e\nID: 1\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n",
        );
        let layout = SampleLayout::new(PERF_SAMPLE_TID | PERF_SAMPLE_RAW, 0);
        let format = Format::Tracepoint(Arc::new(format.unwrap()));
        let event = EventType { alias: None, format, layout, max_stack: None };
        let record =
            [&[9, 0, 0, 0, 0, 0, 28, 0][..], &[0xff; 8], &8u32.to_ne_bytes(), &[1, 0, 0, 0, 7, 0, 0, 0]].concat();
        let mut out = Vec::new();
        write_json("s:e", &Sample { event: &event, record: &record }, &Context::new(Box::new(NoKernel), 0), &mut out);
        let line: Json = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            (&line["_pid"], &line["_tid"], &line["common_pid"]),
            (&json!(-1), &json!(-1), &Json::Null),
            "{line}"
        );
    }

    #[test]
    fn names_of_numbers() {
        let is_name = |shown: &str, number| is_name(shown.as_bytes(), Some(Value::Uint(number)));
        assert!(is_name("D", 2) && is_name("S|D", 3) && is_name("GFP_KERNEL", 0xcc0) && is_name("a.out+0x3", 3));
        assert!(!is_name("001", 1) && !is_name("-2", u64::MAX - 1) && !is_name("ff", 255) && !is_name("0xff", 255));
        assert!(!is_name("", 0));
    }
}
