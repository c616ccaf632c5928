//! `block-io`: requests to block devices, from their begin to their completion.

use perf_prof_format::{abi::system_calls, spec::Nesting};

use super::{Field, Flag, Rule, Scope, SourceDefinition, texts};
use crate::{
    derive::span::Keep,
    event::{PartView, SpanTask, SpanView},
};

/// A request has no number in these events. Its device and its first sector identify it, because the requests of a
/// device that are open at the same time have different sectors. A merge changes the sectors of a request, so merges
/// have rules of their own.
///
/// Flushes have no sectors, so their key has three parts. The block layer completes flushes in the order in which they
/// came (block/blk-flush.c). It issues its own flush request, `FF`, for all flushes that wait. The completion of `FF`
/// has no sector, so it does not end a span. If a flush must follow a write, the span of the write ends when its data
/// is written.
pub(super) const BLOCK_IO: SourceDefinition = SourceDefinition {
    system: "",
    name: "block-io",
    about: "a request to a block device, from its begin to its completion",
    example: "block-io/op=write|flush, min=10ms/",
    rules: &[
        // This event exists since Linux 6.5. It happens in the task that makes the request; the others may happen in any task.
        Rule::begin("block:block_io_start", "dev+sector").when("nr_sector != 0").optional(),
        Rule::begin_another("block:block_io_start", "dev+sector+nr_sector")
            .when("nr_sector == 0 && rwbs ~ \"F*\"")
            .optional(),
        // A bio for the sectors before this request was merged into it.
        Rule::discard("block:block_bio_frontmerge", "dev+sector plus nr_sector").optional(),
        Rule::begin("block:block_bio_frontmerge", "dev+sector").optional(),
        // This request was merged into the request for the sectors before it.
        Rule::discard("block:block_rq_merge", "dev+sector").optional(),
        Rule::begin_unless_open("block:block_rq_insert", "dev+sector").when("nr_sector != 0"),
        Rule::begin_unless_open("block:block_rq_issue", "dev+sector").when("nr_sector != 0"),
        Rule::note("block:block_rq_issue", "dev+sector", Keep::Last).when("nr_sector != 0"),
        Rule::note("block:block_rq_issue", "dev+sector+nr_sector", Keep::Last).when("rwbs == \"FF\""),
        Rule::end("block:block_rq_complete", "dev+sector").when("nr_sector != 0"),
        Rule::end_first("block:block_rq_complete", "dev+sector+nr_sector").when("nr_sector == 0 && sector == 0"),
    ],
    nesting: Nesting::Replaced,
    task: SpanTask::OfBegin,
    scope: Scope::Machine,
    flags: &[Flag { name: "failed", filter: "errno != \"\"", about: "requests that failed" }],
    fields: &[
        Field::text("dev", "major and minor number of the device, for example 254:0, as lsblk shows them", |span| {
            let dev = span.begin().uint("dev");
            // The layout of dev_t within the kernel (include/linux/kdev_t.h).
            format!("{}:{}", dev >> 20, dev & 0xf_ffff).into_bytes().into()
        }),
        Field::text("op", "read, write, flush, discard, secure-erase, zone, or other", |span| {
            operation(&span.begin()).as_bytes().into()
        })
        .one_of(|| texts(["read", "write", "flush", "discard", "secure-erase", "zone", "other"]), ""),
        Field::uint("sector", "its first sector, in units of 512 bytes", |span| largest(span).uint("sector")),
        Field::uint("bytes", "its size; 0 for a flush", |span| largest(span).uint("bytes")),
        Field::time("queued", "ns until it was issued to the device; 0 if that is not known", |span| {
            issue(span).map_or(0, |issue| issue.time().saturating_sub(span.begin().time()))
        }),
        Field::time("device", "ns from then to its completion; 0 if that is not known", |span| {
            let queued = |issue: PartView<'_>| issue.time().saturating_sub(span.begin().time());
            issue(span).map_or(0, |issue| span.duration().saturating_sub(queued(issue)))
        }),
        Field::text("comm", "name of the thread that asked for it", |span| span.begin().text("comm").into()),
        Field::int(
            "pid",
            "process that asked for it; for pages that are written back, a thread of the kernel",
            |span| span.begin().pid().into(),
        ),
        Field::text("errno", "name of the error; empty if there was none", |span| {
            match span.end().map_or(0, |end| end.int("error")) {
                0 => b"".into(),
                error => match system_calls::error_name(error.saturating_abs()) {
                    Some(name) => name.as_bytes().into(),
                    None => format!("errno_{}", error.saturating_abs()).into_bytes().into(),
                },
            }
        }),
        Field::text(
            "rwbs",
            "the operation and its flags, as the kernel writes them: WSM is a synchronous write of metadata",
            |span| span.begin().text("rwbs").into(),
        ),
    ],
    ends_soon: true,
    narrow: None,
};

/// Returns the last sample of `block_rq_issue`. There may be several, because a busy device may refuse a request.
fn issue<'a>(span: &SpanView<'a>) -> Option<PartView<'a>> {
    span.note("block_rq_issue")
}

/// Returns the sample with the final size of the request: other requests may have been merged into it before it was issued.
fn largest<'a>(span: &SpanView<'a>) -> PartView<'a> {
    issue(span).unwrap_or_else(|| span.begin())
}

/// Returns the name of the operation in `rwbs`, a text that `blk_fill_rwbs()` in kernel/trace/blktrace.c writes. It has
/// an F if a flush comes before the operation, then a letter for the operation, then flags. A flush request is an empty
/// write with this F.
fn operation(begin: &PartView<'_>) -> &'static str {
    let rwbs = begin.text("rwbs");
    if rwbs.starts_with(b"F") && begin.int("nr_sector") == 0 {
        return "flush";
    }
    match rwbs.strip_prefix(b"F").unwrap_or(rwbs) {
        [b'D', b'E', ..] => "secure-erase",
        [b'Z', ..] => "zone",
        [b'R', ..] => "read",
        [b'W', ..] => "write",
        [b'D', ..] => "discard",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::source::made::{MadeEvent, MadeRun, MadeSample};

    const START: &str = "block:block_io_start";
    const COMPLETE: &str = "block:block_rq_complete";
    const MERGES: [&str; 2] = ["block:block_bio_frontmerge", "block:block_rq_merge"];
    const FIELDS: &[&str] =
        &["unsigned int dev", "u64 sector", "unsigned int nr_sector", "int error", "char rwbs[8]", "char comm[8]"];

    /// A request: its sector, and its begin and end in ms.
    type Request = (i64, u64, Option<u64>);

    /// Runs the source on the requests. Returns the tasks that lack spans, each with the number of its gaps, and the
    /// number of spans whose end was not seen.
    fn missing(requests: &[Request], events: &[&'static str]) -> (Vec<(i32, u64)>, u64) {
        let events: Vec<_> = events.iter().map(|&name| MadeEvent { name, fields: FIELDS, print: "\"\"" }).collect();
        let mut run = MadeRun::start(&BLOCK_IO, "block-io", &events);
        run.belongs(7, 7);
        let begins = requests.iter().map(|&(sector, begin, _)| (START, begin, sector));
        let ends = requests.iter().filter_map(|&(sector, _, end)| Some((COMPLETE, end?, sector)));
        let mut all: Vec<_> = begins.chain(ends).collect();
        all.sort_by_key(|event| event.1);
        for (event, time, sector) in all {
            let fields = [("dev", 1), ("sector", sector), ("nr_sector", 8)];
            run.spans(&[MadeSample { event, tid: 7, cpu: 0, time: time * 1_000_000, fields: &fields }]);
        }
        run.finish();
        (run.gaps(), run.unended())
    }

    #[test]
    fn a_request_without_a_completion_is_missing() {
        let all = [START, MERGES[0], MERGES[1], COMPLETE];
        let seen = |sector, at| (sector, at, Some(at + 2));
        let rows: [(&[Request], u64); 6] = [
            // Two requests are open at the end.
            (&[seen(10, 1), seen(20, 300), (30, 280, None), (40, 301, None)], 0),
            (&[seen(10, 1), (20, 5, None), seen(30, 300)], 1),
            // The second request has no completion, but a later request for the same sectors shows that it is over.
            (&[seen(10, 1), (20, 5, None), seen(20, 300), seen(30, 301)], 1),
            // Two requests for the same sectors at the same time.
            (&[seen(10, 1), (20, 5, Some(10)), (20, 6, Some(11)), seen(30, 300)], 0),
            (&[(10, 1, None), (20, 2, None), (30, 100, None)], 0),
            (&[1, 2, 3, 4, 5, 6, 7, 8, 20].map(|at| (at, at as u64, None)), 8),
        ];
        for (requests, expected) in rows {
            let tasks = if expected == 0 { vec![] } else { vec![(7, expected)] };
            assert_eq!(missing(requests, &all), (tasks, expected), "{requests:?}");
        }
        // A merged request has no completion. A recording without the events of merges does not show which requests were
        // merged.
        assert_eq!(missing(rows[1].0, &[START, COMPLETE]).1, 0);
    }
}
