//! `block-io`: requests to block devices, from their begin to their completion.

use perf_prof_format::abi::system_calls;

use super::{Field, Flag, Rule, Scope, SourceDefinition, texts};
use crate::{
    derive::span::{FlushChange, Keep, WAIT},
    event::{PartView, SpanTask, SpanView},
};

/// These events do not number requests. A request is known by its device and its first sector. A merge changes the sectors of
/// a request, so merges have rules of their own.
///
/// Several requests for the same first sector may be open at once, for example if several tasks read the same file without
/// the page cache. These requests are told apart by their numbers of sectors, by their `rwbs`, and by their state: only a
/// request that was issued, or that fails, can complete. A request is issued again only after `block_rq_requeue`. Equal
/// requests that are on the device at once are dropped, because no event says which of them completes. A request from before
/// the run is told apart in the same way. If a driver completes a request in parts (`blk_update_request()` in
/// block/blk-mq.c), no part has the size of the request, so its end counts as not seen.
///
/// Flushes have no sectors, so [`FlushChange`] finds out which flush ends. Three kinds of requests involve flushes
/// (block/blk-flush.c):
///
/// * A flush that a task asks for and waits for. This flush ends together with a flush of the block layer.
/// * A flush of the block layer, which serves all requests that wait for a flush at that time. Its `rwbs` is `FF`.
/// * A write that needs a flush before or after its data. The block layer issues the write without the flags for flushes.
///   The write completes twice: first when its data is written, and then when everything is done. The second completion has
///   no sectors. If the flush before the data fails, the write completes once.
pub(super) const BLOCK_IO: SourceDefinition = SourceDefinition {
    name: "block-io",
    about: "a request to a block device, from its begin to its completion",
    example: "block-io/op=write|flush, min=10ms/",
    rules: &[
        // `block_io_start` exists since Linux 6.5. It happens in the task that makes the request. The other events may
        // happen in any task.
        Rule::begin("block:block_io_start", "dev+sector").when("nr_sector != 0").among(is_waiting).optional(),
        Rule::begin_another("block:block_io_start", WAIT).when("nr_sector == 0 && rwbs ~ \"F*\"").optional(),
        // The bio of this event was merged into the request for the sectors after those of the bio.
        Rule::discard("block:block_bio_frontmerge", "dev+sector plus nr_sector").among(accepts_bio).optional(),
        Rule::begin("block:block_bio_frontmerge", "dev+sector").among(is_waiting).optional(),
        // The request of this event was merged into the request for the sectors before it.
        Rule::discard("block:block_rq_merge", "dev+sector").among(is_waiting).optional(),
        Rule::begin_unless_open("block:block_rq_insert", "dev+sector").when("nr_sector != 0").among(is_new),
        Rule::note("block:block_rq_insert", "dev+sector", Keep::Last)
            .when("nr_sector != 0")
            .after(is_flushed_before)
            .among(is_new),
        Rule::begin_unless_open("block:block_rq_issue", "dev+sector").when("nr_sector != 0").among(is_waiting),
        Rule::note("block:block_rq_issue", "dev+sector", Keep::Last).when("nr_sector != 0").among(is_waiting),
        Rule::flush("block:block_rq_issue", OWN_FLUSH, FlushChange::Issued).when("rwbs == \"FF\""),
        Rule::note("block:block_rq_issue", WAIT, Keep::Last).when("rwbs == \"FF\""),
        // The device was busy, so the block layer will issue the request or the flush again.
        Rule::note("block:block_rq_requeue", "dev+sector", Keep::Last)
            .when("nr_sector != 0")
            .among(is_on_device)
            .optional(),
        Rule::flush("block:block_rq_requeue", OWN_FLUSH, FlushChange::Requeued).when("rwbs == \"FF\"").optional(),
        Rule::note("block:block_rq_complete", "dev+sector", Keep::First)
            .when("nr_sector != 0")
            .after(completes_twice)
            .among(is_on_device),
        Rule::end("block:block_rq_complete", "dev+sector")
            .when("nr_sector != 0")
            .after(completes_once)
            .among(completes),
        Rule::end("block:block_rq_complete", "dev+sector")
            .when("nr_sector == 0 && sector != 0 && rwbs != \"FF\"")
            .after(completes_twice)
            .among(waits_for_last_flush),
        Rule::flush("block:block_rq_complete", WAIT, FlushChange::WaitEnded)
            .when("nr_sector == 0 && sector == 0 && rwbs != \"FF\""),
        Rule::flush("block:block_rq_complete", OWN_FLUSH, FlushChange::Ended).when("rwbs == \"FF\""),
    ],
    task: SpanTask::OfBegin,
    scope: Scope::Machine,
    flags: &[Flag { name: "failed", filter: "errno != \"\"", about: "requests that failed" }],
    fields: &[
        Field::text("dev", "major and minor number of the device, for example 254:0, as lsblk shows them", |span| {
            let dev = span.begin().uint("dev");
            // The layout of dev_t inside the kernel (include/linux/kdev_t.h).
            format!("{}:{}", dev >> 20, dev & 0xf_ffff).into_bytes().into()
        }),
        Field::text(
            "op",
            "read, write, flush, discard, secure-erase, write-zeroes, zone-append, another operation on zones, or other: one \
             for which the kernel has no letter, before Linux 6.17 also write-zeroes and zone-append",
            |span| {
                let begin = span.begin();
                let has_sectors = begin.int("nr_sector") != 0;
                operation(begin.text("rwbs"), begin.size_of("rwbs"), has_sectors).as_bytes().into()
            },
        )
        .one_of(|| texts(OPERATIONS), ""),
        Field::uint("sector", "its first sector, in units of 512 bytes", |span| largest(span).uint("sector")),
        Field::uint("bytes", "its size; 0 for a flush", |span| largest(span).uint("bytes")),
        Field::time_if_known(
            "queued",
            "ns until it was issued to the device, without the time in `flush`; None if that is not known, as for `FF`",
            |span| Times::of(span)?.queued,
        ),
        Field::time_if_known(
            "flush",
            "ns for which a write waited for flushes of the device, before and after its data; None if that is not known",
            |span| Some(Times::of(span)?.flush),
        ),
        Field::time_if_known(
            "device",
            "ns from its issue to its completion, without the time in `flush`; None if that is not known",
            |span| Some(Times::of(span)?.device),
        ),
        Field::text("comm", "name of the thread that asked for it", |span| span.begin().text("comm").into()),
        Field::int(
            "pid",
            "process that asked for it; for pages that are written back, and for `FF`, a thread of the kernel",
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
            "the operation and its flags, as the kernel writes them: WSM is a synchronous write of metadata, FF a flush that the \
             kernel makes for all requests that wait for one",
            |span| span.begin().text("rwbs").into(),
        ),
    ],
    ends_soon: Some(kind),
    is_awaited: Some(is_awaited),
    ..SourceDefinition::EMPTY
};

/// Returns the kind of a request: its device and its operation. The operation is a part of the kind, because a device may
/// complete thousands of reads in the time of one flush.
fn kind(span: &SpanView<'_>) -> u64 {
    let begin = span.begin();
    let operation = match begin.uint("nr_sector") {
        0 => b'F',
        _ => without_flush(begin.text("rwbs")).first().copied().unwrap_or_default(),
    };
    begin.uint("dev") << 8 | u64::from(operation)
}

/// Returns whether the task that made a request waits for it before it exits: a synchronous request, or a read that is not ahead
/// (`blk_fill_rwbs()` in kernel/trace/blktrace.c). A process waits for asynchronous ones when it exits (`exit_aio()` in
/// fs/aio.c). The last ones of io_uring may go on for as long as the device needs. Only `block_io_start` happens in the task
/// that makes the request.
fn is_awaited(span: &SpanView<'_>) -> bool {
    let begin = span.begin();
    let rwbs = without_flush(begin.text("rwbs"));
    begin.is("block_io_start") && (rwbs.contains(&b'S') || rwbs.starts_with(b"R") && !rwbs.contains(&b'A'))
}

/// The key of the flushes of the block layer.
const OWN_FLUSH: &str = "dev";

/// The parts of a request's duration, in ns.
struct Times {
    /// `None` for a flush of the block layer: no event says when its wait in the queue began.
    queued: Option<u64>,
    flush: u64,
    device: u64,
}

impl Times {
    /// Returns the parts; `None` if no issue of the request was seen.
    fn of(span: &SpanView<'_>) -> Option<Times> {
        let begin = span.begin();
        if is_own_flush(&begin) {
            return Some(Times { queued: None, flush: 0, device: span.duration() });
        }
        let issue = issue(span)?;
        let since_begin = |part: PartView<'_>| part.time().saturating_sub(begin.time());
        let until_issue = since_begin(issue);
        let flush_before = match is_flushed_before(span) {
            true => since_begin(span.note("block_rq_insert").unwrap_or(issue)).min(until_issue),
            false => 0,
        };
        let on_device = span.duration().saturating_sub(until_issue);
        let with_data = span.note("block_rq_complete");
        let flush_after = with_data.map_or(0, |data| span.duration().saturating_sub(since_begin(data))).min(on_device);
        let (queued, flush) = (until_issue - flush_before, flush_before + flush_after);
        Some(Times { queued: Some(queued), flush, device: on_device - flush_after })
    }
}

/// Returns whether this sample begins a flush of the block layer.
fn is_own_flush(begin: &PartView<'_>) -> bool {
    begin.is("block_rq_issue") && begin.int("nr_sector") == 0
}

/// Returns whether the request is a write that waits for a flush before its data is written.
fn is_flushed_before(span: &SpanView<'_>) -> bool {
    let begin = span.begin();
    begin.int("nr_sector") != 0 && begin.text("rwbs").starts_with(b"F")
}

/// Returns whether the request is a write that completes a second time, after a flush. The flags of such a write ask for a
/// flush at its begin, and no longer when the write is issued.
fn completes_twice(span: &SpanView<'_>) -> bool {
    // For a write to sector 0, the second completion cannot be distinguished from the completion of a flush.
    let begin = span.begin();
    let Some(issue) = issue(span).filter(|_| begin.uint("sector") != 0) else { return false };
    let is_fua = |part: &PartView<'_>| without_flush(part.text("rwbs")).starts_with(b"WF");
    is_flushed_before(span) || is_fua(&begin) && !is_fua(&issue)
}

fn completes_once(span: &SpanView<'_>) -> bool {
    !completes_twice(span)
}

/// Returns whether the request was issued to the device, and not given back.
fn is_issued(span: &SpanView<'_>) -> bool {
    let requeue = span.note("block_rq_requeue");
    issue(span).is_some_and(|issue| requeue.is_none_or(|requeue| requeue.time() < issue.time()))
}

/// Returns how many sectors merges have added to the request, if this sample is of the request. Returns `None` if the
/// request does not wait to be issued, or if the sample cannot be of it.
fn is_waiting(span: &SpanView<'_>, sample: &PartView<'_>) -> Option<u64> {
    accepts_bio(span, sample)?;
    sample.uint("nr_sector").checked_sub(span.begin().uint("nr_sector"))
}

/// Returns `Some` if the bio of this sample can be merged into the request.
fn accepts_bio(span: &SpanView<'_>, sample: &PartView<'_>) -> Option<u64> {
    let letter = |part: &PartView<'_>| without_flush(part.text("rwbs")).first().copied();
    (!is_issued(span) && letter(&span.begin()) == letter(sample)).then_some(0)
}

/// Returns `Some` if this sample can be the insertion of the request into a queue, like [`is_waiting`]. Without
/// `block_io_start`, a request begins with its insertion, and is inserted again only if the device gave it back.
fn is_new(span: &SpanView<'_>, sample: &PartView<'_>) -> Option<u64> {
    let is_inserted = span.begin().is("block_rq_insert") && span.note("block_rq_requeue").is_none();
    if is_inserted { None } else { is_waiting(span, sample) }
}

/// Returns `Some` if the request was issued and this sample can be of it: the sample has the size and the flags of the
/// issue.
fn is_on_device(span: &SpanView<'_>, sample: &PartView<'_>) -> Option<u64> {
    let issue = issue(span).filter(|_| is_issued(span))?;
    let is_same = issue.uint("nr_sector") == sample.uint("nr_sector") && issue.text("rwbs") == sample.text("rwbs");
    is_same.then_some(0)
}

/// Returns `Some` if this sample can be the completion of the request. A request that was not issued completes only if it
/// fails: the driver refuses it, its device is removed, or the flush before its data fails.
fn completes(span: &SpanView<'_>, sample: &PartView<'_>) -> Option<u64> {
    is_on_device(span, sample).or_else(|| is_waiting(span, sample).filter(|_| sample.int("error") != 0))
}

/// Returns `Some` if the data of the request is written, and only a flush is left.
fn waits_for_last_flush(span: &SpanView<'_>, _: &PartView<'_>) -> Option<u64> {
    (completes_twice(span) && span.note("block_rq_complete").is_some()).then_some(0)
}

/// Returns the last `block_rq_issue` of the request. A busy device may refuse a request, which is then issued again.
fn issue<'a>(span: &SpanView<'a>) -> Option<PartView<'a>> {
    span.note("block_rq_issue")
}

/// Returns the sample with the final size of the request, after other requests were merged into it.
fn largest<'a>(span: &SpanView<'a>) -> PartView<'a> {
    issue(span).unwrap_or_else(|| span.begin())
}

/// Returns `rwbs` without the `F` of a flush that comes first.
fn without_flush(rwbs: &[u8]) -> &[u8] {
    rwbs.strip_prefix(b"F").unwrap_or(rwbs)
}

/// The names of operations, those of `enum req_op` in include/linux/blk_types.h.
const OPERATIONS: [&str; 13] = [
    "read",
    "write",
    "flush",
    "discard",
    "secure-erase",
    "write-zeroes",
    "zone-append",
    "zone-reset",
    "zone-reset-all",
    "zone-open",
    "zone-close",
    "zone-finish",
    "other",
];

/// The size of `rwbs` since the kernel has letters for zones (Linux 6.17).
const RWBS_WITH_ZONES: usize = 10;

/// Returns the name of the operation in `rwbs`, a text that `blk_fill_rwbs()` in kernel/trace/blktrace.c writes: an `F` if a
/// flush comes first, letters for the operation, then flags. A request to flush is a write without data with this `F`.
///
/// `size` is the size of the field, and `has_sectors` is false for a request without sectors.
fn operation(rwbs: &[u8], size: usize, has_sectors: bool) -> &'static str {
    if rwbs.starts_with(b"F") && !has_sectors {
        return "flush";
    }
    match without_flush(rwbs) {
        [b'R', ..] => "read",
        // Since Linux 6.19.
        [b'W', b'Z', ..] => "write-zeroes",
        [b'W', ..] => "write",
        [b'D', b'E', ..] => "secure-erase",
        [b'D', ..] => "discard",
        [b'Z', b'A', ..] => "zone-append",
        [b'Z', b'R', b'A', ..] => "zone-reset-all",
        [b'Z', b'R', ..] => "zone-reset",
        [b'Z', b'O', ..] => "zone-open",
        [b'Z', b'C', ..] => "zone-close",
        [b'Z', b'F', ..] => "zone-finish",
        // `N` stands for all operations without letters. Of these, only write-zeroes have sectors.
        [b'N', ..] if size >= RWBS_WITH_ZONES && has_sectors => "write-zeroes",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::source::made::{MadeEvent, MadeRun, MadeSample, MadeSpan};

    const START: &str = "block:block_io_start";
    const ISSUE: &str = "block:block_rq_issue";
    const COMPLETE: &str = "block:block_rq_complete";
    const DISCARDS: [&str; 3] = ["block:block_bio_frontmerge", "block:block_rq_merge", "block:block_rq_requeue"];
    const FIELDS: &[&str] =
        &["unsigned int dev", "u64 sector", "unsigned int nr_sector", "int error", "char rwbs[8]", "char comm[8]"];

    /// A request: its sector, when it begins and when it ends, in ms.
    type Request = (i64, u64, Option<u64>);

    /// Runs the source on these requests. Returns the tasks that lack spans with the numbers of their gaps, and the number
    /// of spans whose end was not seen.
    fn missing(requests: &[Request], events: &[&'static str]) -> (Vec<(i32, u64)>, u64) {
        let events: Vec<_> = events.iter().map(|&name| MadeEvent { name, fields: FIELDS, print: "\"\"" }).collect();
        let mut run = MadeRun::start(&BLOCK_IO, "block-io", &events);
        run.belongs(7, 7);
        let begins = requests.iter().flat_map(|&(sector, begin, _)| [START, ISSUE].map(|event| (event, begin, sector)));
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

    /// A request that its task waits for has ended when the task exits. A read ahead, or a write that nobody waits for, may go on.
    #[test]
    fn an_awaited_request_of_a_task_that_has_exited_is_missing() {
        let events = [START, DISCARDS[0], DISCARDS[1], DISCARDS[2], ISSUE, COMPLETE];
        let [reads, reads_ahead, writes, writes_behind] = ["R", "RA", "WS", "W"];
        for (rwbs, expected) in [(reads, 1), (reads_ahead, 0), (writes, 1), (writes_behind, 0)] {
            for (exit, expected) in [(Some(3), expected), (Some(1), 0), (None, 0)] {
                let events = events.map(|name| MadeEvent { name, fields: FIELDS, print: "\"\"" });
                let mut run = MadeRun::start(&BLOCK_IO, "block-io", &events);
                run.belongs(7, 7);
                let mut letters = [0; 8];
                letters[..rwbs.len()].copy_from_slice(rwbs.as_bytes());
                let fields = [("dev", 1), ("sector", 10), ("nr_sector", 8), ("rwbs", i64::from_le_bytes(letters))];
                run.spans(&[START, ISSUE].map(|event| MadeSample { event, tid: 7, cpu: 0, time: 2, fields: &fields }));
                exit.into_iter().for_each(|time| run.exits(7, time));
                run.finish();
                assert_eq!(run.unended(), expected, "{rwbs} {exit:?}");
            }
        }
    }

    #[test]
    fn a_request_without_a_completion_is_missing() {
        let all = [START, DISCARDS[0], DISCARDS[1], DISCARDS[2], ISSUE, COMPLETE];
        let seen = |sector, at| (sector, at, Some(at + 2));
        let rows: [(&[Request], u64); 5] = [
            // Two requests are open at the end.
            (&[seen(10, 1), seen(20, 300), (30, 280, None), (40, 301, None)], 0),
            (&[seen(10, 1), (20, 5, None), seen(30, 300)], 1),
            // The second request has no completion. A later request for the same sectors shows that it is over.
            (&[seen(10, 1), (20, 5, None), seen(20, 300), seen(30, 301)], 1),
            (&[(10, 1, None), (20, 2, None), (30, 100, None)], 0),
            (&[1, 2, 3, 4, 5, 6, 7, 8, 20].map(|at| (at, at as u64, None)), 8),
        ];
        for (requests, expected) in rows {
            let tasks = if expected == 0 { vec![] } else { vec![(7, expected)] };
            assert_eq!(missing(requests, &all), (tasks, expected), "{requests:?}");
        }
        // A merged request has no completion. Without the events of merges, nobody knows which requests were merged.
        assert_eq!(missing(rows[1].0, &[START, ISSUE, COMPLETE]).1, 0);
    }

    #[test]
    fn operations_have_the_names_of_the_kernel() {
        for (rwbs, name) in [
            ("RA", "read"),
            ("WSM", "write"),
            ("FWFS", "write"),
            ("WZS", "write-zeroes"),
            ("DS", "discard"),
            ("DES", "secure-erase"),
            ("ZAS", "zone-append"),
            ("ZRS", "zone-reset"),
            ("ZRAS", "zone-reset-all"),
            ("ZOS", "zone-open"),
            ("ZCS", "zone-close"),
            ("ZFS", "zone-finish"),
            ("NS", "write-zeroes"),
        ] {
            assert!(OPERATIONS.contains(&name));
            assert_eq!(operation(rwbs.as_bytes(), 10, true), name, "{rwbs}");
        }
        assert_eq!([operation(b"FF", 10, false), operation(b"F", 8, false)], ["flush"; 2]);
        // Before Linux 6.17, an append to a zone has no letters of its own either.
        assert_eq!([operation(b"NS", 8, true), operation(b"N", 10, false)], ["other"; 2]);
    }

    /// Runs the source on samples of requests to `sector`: event, time in ms, number of sectors, and `rwbs`. Returns, for
    /// each span in ms: its duration, and how long it was queued, waited for a flush, and was on the device.
    fn times(sector: i64, samples: &[(&str, u64, i64, &str)]) -> Vec<(u64, [Option<u64>; 3])> {
        let events = [START, ISSUE, "block:block_rq_insert", COMPLETE, DISCARDS[2]];
        let events = events.map(|name| MadeEvent { name, fields: FIELDS, print: "\"\"" });
        let mut run = MadeRun::start(&BLOCK_IO, "block-io", &events);
        let mut spans = Vec::new();
        // Requests that were not issued fail.
        let error = if samples.iter().any(|sample| sample.0 == ISSUE) { 0 } else { -5 };
        for &(event, ms, nr_sector, rwbs) in samples {
            let mut bytes = [0; 8];
            bytes[..rwbs.len()].copy_from_slice(rwbs.as_bytes());
            // The completion of a flush of the block layer has an impossible sector.
            let sector = match (rwbs, event) {
                ("FF", COMPLETE) => i64::MAX,
                ("FF", _) => 0,
                _ => sector,
            };
            let rwbs = i64::from_le_bytes(bytes);
            let fields = [("dev", 1), ("sector", sector), ("nr_sector", nr_sector), ("error", error), ("rwbs", rwbs)];
            spans.extend(run.spans(&[MadeSample { event, tid: 7, cpu: 0, time: ms * 1_000_000, fields: &fields }]));
        }
        let part = |line: &str, field: &str| -> Option<u64> {
            let value = line.split(' ').find_map(|word| word.strip_prefix(field)?.strip_prefix('=')).unwrap();
            (value != "-").then(|| value.parse::<u64>().unwrap() / 1_000_000)
        };
        let times = |(line, span): (&String, &MadeSpan)| {
            ((span.end - span.begin) / 1_000_000, ["queued", "flush", "device"].map(|field| part(line, field)))
        };
        spans.iter().zip(&run.delivered).map(times).collect()
    }

    #[test]
    fn a_flush_of_the_device_has_its_time_on_the_device_from_its_last_issue() {
        let [issue, requeue] = [ISSUE, DISCARDS[2]];
        let own = |events: &[(&'static str, u64)]| {
            times(8, &events.iter().map(|&(event, ms)| (event, ms, 0, "FF")).collect::<Vec<_>>())
        };
        // No event says how long a flush of the block layer was queued.
        let on_device = |ms| (ms, [None, Some(0), Some(ms)]);
        assert_eq!(own(&[(issue, 1), (COMPLETE, 5), (issue, 6), (COMPLETE, 7)]), [on_device(4), on_device(1)]);
        assert_eq!(own(&[(issue, 1), (requeue, 2), (issue, 3), (COMPLETE, 5)]), [on_device(2)]);
    }

    #[test]
    fn a_write_ends_with_the_last_flush_that_it_needs() {
        let [issue, insert] = [ISSUE, "block:block_rq_insert"];
        let data = |ms, rwbs| [(insert, ms, 2, rwbs), (issue, ms + 1, 2, rwbs), (COMPLETE, ms + 3, 2, rwbs)];
        // A flush before the data, and one after it.
        let both = [&[(START, 1, 2, "FWFSM")], &data(11, "WSM")[..], &[(COMPLETE, 19, 0, "WSM")]].concat();
        let known = |ms, parts: [u64; 3]| (ms, parts.map(Some));
        assert_eq!(times(8, &both), [known(18, [1, 15, 2])]);
        // For a write to sector 0, only the first completion can be distinguished from that of a flush.
        assert_eq!(times(0, &both), [known(13, [1, 10, 2])]);
        // A flush only after the data, because the device has no FUA.
        let after = [&[(START, 1, 2, "WFS")], &data(2, "WS")[..], &[(COMPLETE, 9, 0, "WS")]].concat();
        assert_eq!(times(8, &after), [known(8, [2, 4, 2])]);
        // The device has FUA, so there is one completion.
        assert_eq!(times(8, &[&[(START, 1, 2, "WFS")], &data(2, "WFS")[..]].concat()), [known(4, [2, 0, 2])]);
        // The flush before the data failed, so the data was never issued.
        assert_eq!(times(8, &[(START, 1, 2, "FWS"), (COMPLETE, 5, 2, "WS")]), [(4, [None; 3])]);
    }
}
