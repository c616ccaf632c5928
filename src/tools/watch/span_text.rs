//! The text of a span in a line of `perf-prof trace`. Times have the format of `perf trace`: ms with three digits after
//! the point.

use std::io::Write as _;

use perf_prof_events::event::{Sample, SpanFieldKind, SpanFormat, SpanPart};
use perf_prof_format::{
    tracefs::{Field, Kernel},
    value::Value,
};

/// Writes a time in ns as ms: `10.307 ms`. Digits below a microsecond are cut off.
pub(super) fn write_time(ns: u64, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{}.{:03} ms", ns / 1_000_000, ns % 1_000_000 / 1000);
}

/// Writes the duration and the fields of a span, and the text of the events that begin and end it if the user selected
/// them.
pub(super) fn write(span: &SpanFormat, sample: &Sample<'_>, kernel: &dyn Kernel, out: &mut Vec<u8>) {
    let raw = sample.raw();
    let number = |field: Option<&Field>| match field.and_then(|field| field.value(raw)) {
        Some(Value::Uint(number)) => number,
        Some(Value::Bool(is_true)) => is_true.into(),
        _ => 0,
    };
    write_time(number(span.format.field("duration")), out);
    if number(span.format.field("open")) != 0 {
        out.extend_from_slice(b" (open)");
    }
    for field in &span.fields {
        out.push(b' ');
        out.extend_from_slice(field.name.as_bytes());
        out.push(b'=');
        match field.kind {
            SpanFieldKind::Time => write_time(number(span.format.field(&field.name)), out),
            SpanFieldKind::TimeIfKnown => match span.format.field(&field.name).and_then(|field| field.value(raw)) {
                Some(Value::Uint(time)) => write_time(time, out),
                _ => out.push(b'-'),
            },
            SpanFieldKind::Address => _ = write!(out, "{:#x}", number(span.format.field(&field.name))),
            _ => _ = span.format.render_field(&field.name, raw, kernel, out),
        }
    }
    let part = |part| span.sample(part, raw).filter(|_| !span.is_source());
    for part in [SpanPart::Begin, SpanPart::End].into_iter().filter_map(part) {
        if let Some(format) = part.event.format.tracepoint() {
            let _ = write!(out, " | {}: ", format.name);
            format.render(part.raw(), kernel, out);
        }
    }
}
