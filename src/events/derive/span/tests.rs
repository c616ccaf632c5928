//! Tests of the engine: it makes the same spans as a simple model, for any order of events, any losses and any size of the
//! table.

use std::{cell::RefCell, sync::Arc};

use perf_prof_format::{
    abi::{PERF_SAMPLE_CPU, PERF_SAMPLE_RAW, PERF_SAMPLE_TID, PERF_SAMPLE_TIME},
    record::{SampleLayout, SampleValues},
    spec::{EventKind, SpanEvents, parse_events},
    tracefs::NoKernel,
    value::Value,
};
use proptest::prelude::*;

use super::*;
use crate::event::{ComputeField, Flow, Sample, SpanFieldSource};

const SAMPLES: u64 = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_RAW;

/// An event type with a number and a text.
fn input(name: &str, number: &str) -> EventType {
    let text = format!(
        "name: {name}\nID: 7\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
         \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
         \tfield:int {number};\toffset:8;\tsize:4;\tsigned:1;\n\
         \tfield:__data_loc char[] text;\toffset:12;\tsize:4;\tsigned:0;\n\nprint fmt: \"%d %s\", REC->{number}, __get_str(text)\n"
    );
    let format = Format::Tracepoint(Arc::new(EventFormat::parse("s", &text).unwrap()));
    EventType { alias: None, format, layout: SampleLayout::new(SAMPLES, 0), max_stack: None }
}

fn record(event: &EventType, time: u64, tid: i32, number: i32, text: &str) -> Vec<u8> {
    let mut raw = vec![0; 16];
    raw[4..8].copy_from_slice(&tid.to_ne_bytes());
    raw[8..12].copy_from_slice(&number.to_ne_bytes());
    raw[12..16].copy_from_slice(&(16 | (text.len() as u32 + 1) << 16).to_ne_bytes());
    raw.extend(text.as_bytes());
    raw.push(0);
    let values = SampleValues { pid: 1, tid, time, cpu: 2, raw, ..SampleValues::default() };
    event.layout.encode(&values).unwrap()
}

/// A span that is running: its event type, its counts, and the types of the events that begin and end it.
struct Run {
    event: EventType,
    counts: Arc<SpanCounts>,
    engine: Box<dyn Derivation>,
    inputs: Vec<EventType>,
}

/// Starts the span of a selector. If the selector names `s:both` twice, this event both begins and ends spans.
fn start(selector: &str) -> Result<Run, SpanError> {
    start_with(selector, |_| {})
}

/// Starts a span with these fields, and a filter over them.
fn start_with_filter(filter: &str, fields: &[SpanField]) -> Run {
    let run = start_with("span:x=s:begin..s:end//key=_tid/", |span| {
        span.fields = fields.to_vec();
        let inputs = [input("begin", "number"), input("end", "other")];
        let event = span.event_type(&inputs).unwrap();
        span.filters = Some(Filters::OfSpan(Filter::parse(filter, event.format.tracepoint().unwrap()).unwrap()));
    });
    run.unwrap()
}

/// Like `start`, but changes the span first.
fn start_with(selector: &str, change: impl FnOnce(&mut Span)) -> Result<Run, SpanError> {
    let spec = parse_events(selector).unwrap().remove(0);
    let EventKind::Span(span) = &spec.kind else { panic!("{selector} is not a span") };
    let SpanEvents::Selected { begin, end } = &span.events else { panic!("{selector} is a source") };
    let (inputs, rules) = if begin == end {
        (vec![input("both", "number")], vec![vec![0, 1]])
    } else {
        (vec![input("begin", "number"), input("end", "other")], vec![vec![0], vec![1]])
    };
    let formats: Vec<_> = inputs.iter().map(|input| input.format.clone()).zip(rules).collect();
    let mut made = Span::new(span, spec.filter.as_deref(), None, &formats)?;
    change(&mut made);
    let event = made.event_type(&inputs)?;
    let counts = Arc::new(SpanCounts::default());
    let context = Arc::new(Context::new(Box::new(NoKernel), 0));
    let engine = made.start(&event, counts.clone(), context).unwrap();
    Ok(Run { event, counts, engine, inputs })
}

impl Run {
    /// Passes a sample to the engine. Returns the records of the delivered spans.
    fn sample(&mut self, input: usize, record: &[u8]) -> Vec<Vec<u8>> {
        let mut spans = Vec::new();
        let _ = self.engine.sample(input, record, &mut |record| {
            spans.push(record.to_vec());
            Flow::Continue(())
        });
        spans
    }

    fn finish(&mut self) -> Vec<Vec<u8>> {
        let mut spans = Vec::new();
        let _ = self.engine.finish(&mut |record| {
            spans.push(record.to_vec());
            Flow::Continue(())
        });
        spans
    }

    /// Returns when a span began, and when it ended.
    fn times(&self, span: &[u8]) -> (u64, Option<u64>) {
        let Format::Span(format) = &self.event.format else { panic!() };
        let raw = Sample { event: &self.event, record: span }.raw();
        let begin = format.sample(SpanPart::Begin, raw).unwrap();
        (begin.time(), format.sample(SpanPart::End, raw).map(|end| end.time()))
    }

    fn counts(&self) -> [u64; 4] {
        let counts = &self.counts;
        assert_eq!(counts.opened(), counts.ended() + counts.open() + counts.dropped());
        [counts.opened(), counts.ended(), counts.dropped(), counts.without_begin()]
    }
}

#[test]
fn a_span_has_its_duration_its_key_and_both_events() {
    let mut run = start("span:x=s:begin..s:end//key=number:other+text/").unwrap();
    let begin = record(&run.inputs[0], 1_000, 5, -7, "eth0");
    assert!(run.sample(0, &begin).is_empty());
    let other = record(&run.inputs[1], 1_500, 6, -7, "eth1");
    assert!(run.sample(1, &other).is_empty());
    let end = record(&run.inputs[1], 3_001_000, 8, -7, "eth0");
    let spans = run.sample(1, &end);
    let sample = Sample { event: &run.event, record: &spans[0] };
    assert_eq!((sample.time(), sample.pid_tid(), sample.cpu()), (3_001_000, (1, 8), 2));
    let Format::Span(format) = &run.event.format else { panic!() };
    let field = |name: &str| sample.field(format.format.field(name).unwrap()).unwrap();
    assert_eq!(field("duration"), Value::Uint(3_000_000));
    assert_eq!(field("number"), Value::Int(-7));
    assert_eq!(field("text"), Value::Str(b"eth0"));
    assert_eq!(field("open"), Value::Bool(false));
    let part = |part| format.sample(part, sample.raw()).unwrap();
    assert_eq!(part(SpanPart::Begin).record, begin);
    assert_eq!(part(SpanPart::End).record, end);
    assert_eq!(part(SpanPart::End).event.real_name(), "s:end");
    let mut text = Vec::new();
    format.format.render(sample.raw(), &NoKernel, &mut text);
    assert_eq!(String::from_utf8(text).unwrap(), "3.000000 ms number=-7 text=eth0");
    assert_eq!((run.event.handler_name(), run.event.real_name()), ("span__x".to_owned(), "span:x".to_owned()));
    assert_eq!(run.counts(), [1, 1, 0, 1]);
}

#[test]
fn a_filter_sees_the_duration_and_the_fields_of_both_events() {
    let rows = [
        ("duration >= 100", true),
        ("duration > 100", false),
        ("other == 4 && begin.number == 3", true),
        ("begin.number == 4", false),
        ("begin.text == \"a\" && text ~ \"b*\"", true),
        ("text == \"a\"", false),
        ("cpu == 2", true),
        ("common_pid == 9 || begin.common_pid == 1", false),
    ];
    for (filter, passes) in rows {
        let mut run = start(&format!("span:x=s:begin..s:end/{filter}/key=_tid/")).unwrap();
        let (begin, end) = (record(&run.inputs[0], 100, 5, 3, "a"), record(&run.inputs[1], 200, 5, 4, "bc"));
        run.sample(0, &begin);
        assert_eq!(run.sample(1, &end).len(), usize::from(passes), "{filter}");
        assert_eq!(run.counts()[1], 1, "{filter}");
    }
}

/// Fields are costly to compute: some look up the name of a task. If a span does not pass the filter, only the fields that
/// the filter reads are computed.
#[test]
fn fields_that_the_filter_does_not_read_are_computed_only_for_spans_that_pass() {
    thread_local! {
        static COMPUTED: RefCell<Vec<i64>> = const { RefCell::new(Vec::new()) };
    }
    let field = |name: &str, compute: ComputeField| SpanField {
        name: name.to_owned(),
        about: "",
        kind: compute.kind(),
        source: SpanFieldSource::Computed(compute),
        origin: None,
    };
    let text = ComputeField::Text(|span| {
        COMPUTED.with_borrow_mut(|computed| computed.push(span.begin().int("number")));
        span.begin().text("text").into()
    });
    let fields = vec![field("text", text), field("number", ComputeField::Int(|span| span.begin().int("number")))];
    let rows: [(&str, &[i64], &[i64]); 5] = [
        ("number == 2", &[2], &[2]),
        ("number > 7", &[], &[]),
        ("duration >= 30 && number != 3", &[], &[]),
        ("cpu == 2 && number >= 2", &[2, 3], &[2, 3]),
        // The filter reads the text, so it is computed for each span. For the span that passes, it is computed again for the
        // delivery.
        ("text == \"b\"", &[1, 2, 2, 3], &[2]),
    ];
    for (filter, computed, delivered) in rows {
        let mut run = start_with_filter(filter, &fields);
        let mut spans = Vec::new();
        for (number, text) in [(1, "a"), (2, "b"), (3, "c")] {
            let begin = record(&run.inputs[0], 100, 5, number, text);
            run.sample(0, &begin);
            let end = record(&run.inputs[1], 110 + number as u64, 5, 0, "");
            spans.extend(run.sample(1, &end));
        }
        let format = run.event.format.tracepoint().unwrap();
        let number = format.field("number").unwrap();
        let of_spans = spans.iter().map(|record| Sample { event: &run.event, record }.field(number));
        let expected = delivered.iter().map(|&number| Some(Value::Int(number)));
        assert_eq!(of_spans.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{filter}");
        assert_eq!(COMPUTED.take(), computed, "{filter}");
    }
}

/// The filter reads only the text of a number, such as the name of a system call. It is evaluated once for each number.
#[test]
fn a_filter_over_text_that_depends_on_a_number_is_asked_once_for_each_number() {
    thread_local! {
        static COMPUTED: RefCell<Vec<i64>> = const { RefCell::new(Vec::new()) };
    }
    let name = ComputeField::TextOfNumber(
        |span| span.begin().int("number"),
        |_, number| {
            COMPUTED.with_borrow_mut(|computed| computed.push(number));
            format!("call{number}").into_bytes().into()
        },
    );
    let fields = [("name", name), ("ret", ComputeField::Int(|span| span.last().int("other")))];
    let field = |(name, compute): (&str, ComputeField)| SpanField {
        name: name.to_owned(),
        about: "",
        kind: compute.kind(),
        source: SpanFieldSource::Computed(compute),
        origin: None,
    };
    let fields: Vec<SpanField> = fields.into_iter().map(field).collect();
    // Each element of `spans` contains the number in the begin and the number in the end. Each row contains a filter, the
    // indexes of the spans that pass, and the numbers whose text the filter computes.
    let spans = [(1, 0), (2, 0), (1, 9), (2, 9), (1, 0), (3, 9)];
    let rows: [(&str, &[usize], &[i64]); 6] = [
        ("name == \"call1\"", &[0, 2, 4], &[1, 2, 3]),
        ("!(name == \"call1\") && name != \"call3\"", &[1, 3], &[1, 2, 3]),
        ("name == \"call1\" || name ~ \"*3\"", &[0, 2, 4, 5], &[1, 2, 3]),
        ("name == \"call1\" && ret == 9", &[2], &[1, 2, 1, 2, 1, 3]),
        ("name == \"call1\" && cpu == 3", &[], &[1, 2, 1, 2, 1, 3]),
        ("name == \"call1\" && duration > 500", &[], &[1, 2, 1, 2, 1, 3]),
    ];
    for (filter, passing, computed) in rows {
        let mut run = start_with_filter(filter, &fields);
        let mut passed = Vec::new();
        for (at, &(number, end)) in spans.iter().enumerate() {
            let begin = record(&run.inputs[0], 100, 5, number, "");
            run.sample(0, &begin);
            let end = record(&run.inputs[1], 200, 5, end, "");
            if !run.sample(1, &end).is_empty() {
                passed.push(at);
                // The delivery computes the text once more. Ignore this, because the filter did not ask for it.
                COMPUTED.with_borrow_mut(|all| all.pop());
            }
        }
        assert_eq!(passed, passing, "{filter}");
        assert_eq!(COMPUTED.take(), computed, "{filter}");
    }
}

#[test]
fn wrong_keys_and_filters_are_reported() {
    let rows = [
        (
            "span:x=s:begin..s:end//key=numbr/",
            "s:begin has no field `numbr`, which is in the key of the span; did you mean number?",
        ),
        ("span:x=s:begin..s:end//key=number/", "s:end has no field `number`"),
        ("span:x=s:begin..s:end//key=number:text/", "one is a number, the other is text"),
        ("span:x=s:begin..s:end//key=duration/", "all spans have a field `duration`"),
        ("span:x=s:begin..s:end/begin.other==1/key=_tid/", "the event has no field `begin.other`"),
        ("span:x=s:begin..s:end/number==1/key=_tid/", "those of s:begin as begin.NAME"),
        ("span:x=s:begin..s:end/key==1/key=_tid/", "those of s:begin as begin.NAME"),
        ("span:x=s:begin..s:end/stack/key=_tid/", "attributes come after it: span:NAME=s:begin..s:end//stack/"),
        ("span:x=s:begin..s:end/key=number/key=_tid/", "attributes come after it: span:NAME=s:begin..s:end//key/"),
    ];
    for (selector, part) in rows {
        let Err(error) = start(selector) else { panic!("{selector} is accepted") };
        assert!(error.to_string().contains(part), "{selector}: {error}");
    }
}

#[test]
fn one_event_can_end_a_span_and_begin_the_next() {
    let mut run = start("span:x=s:both..s:both//key=number/").unwrap();
    let sample = |run: &Run, time| record(&run.inputs[0], time, 1, 1, "");
    let records = [10, 30, 35].map(|time| sample(&run, time));
    let spans: Vec<_> = records.iter().flat_map(|record| run.sample(0, record)).collect();
    let times: Vec<_> = spans.iter().map(|span| run.times(span)).collect();
    assert_eq!(times, [(10, Some(30)), (30, Some(35))]);
    assert_eq!(run.counts(), [3, 2, 0, 1]);
}

#[test]
fn spans_go_on_with_other_counts() {
    let mut run = start("span:x=s:begin..s:end//key=_tid/").unwrap();
    let record = |run: &Run, input: usize, time, tid| record(&run.inputs[input], time, tid, 0, "");
    run.engine.mute();
    for (input, time, tid) in [(0, 10, 1), (0, 11, 2), (1, 12, 2), (0, 13, 3)] {
        let record = record(&run, input, time, tid);
        assert!(run.sample(input, &record).is_empty());
    }
    assert_eq!((run.counts(), run.counts.open()), ([3, 1, 0, 0], 2));
    let counts = Arc::new(SpanCounts::default());
    run.engine.continue_in(counts.clone(), &Arc::new(Context::new(Box::new(NoKernel), 0)));
    assert_eq!((counts.opened(), counts.open()), (0, 2));
    let end = record(&run, 1, 20, 1);
    let spans = run.sample(1, &end);
    assert_eq!(run.times(&spans[0]), (10, Some(20)));
    assert_eq!((counts.opened(), counts.ended(), counts.open()), (0, 1, 1));
    // The first counts stay unchanged.
    assert_eq!(run.counts(), [3, 1, 0, 0]);
}

/// A step of a run in which events are lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LossStep {
    Sample(usize, u64),
    LossBegins,
    Lost,
}

/// However a run is split into two parts, even during a loss, the spans are the same.
#[test]
fn a_border_within_a_loss_changes_no_span() {
    use LossStep::{LossBegins, Lost, Sample};
    let steps = [
        Sample(0, 10),
        Sample(1, 11),
        // This span is open when the loss begins, and ends during the loss.
        Sample(0, 20),
        LossBegins,
        Sample(1, 21),
        // Two rings lose events. This span begins and ends during the loss of the second ring.
        LossBegins,
        Sample(0, 30),
        Lost,
        Sample(0, 32),
        Sample(1, 33),
        // This span is open when the last loss ends.
        Sample(0, 40),
        Lost,
        Sample(1, 41),
        Sample(0, 50),
        Sample(1, 51),
    ];
    for border in 0..=steps.len() {
        let mut run = start("span:x=s:begin..s:end//key=_tid/").unwrap();
        let (mut times, mut sums, mut lossy) = (Vec::new(), [0; 2], 0);
        for (at, &step) in steps.iter().enumerate() {
            lossy += i32::from(step == LossBegins) - i32::from(step == Lost);
            if at == border {
                sums = [run.counts.ended(), run.counts.dropped()];
                run.counts = Arc::new(SpanCounts::default());
                run.engine.continue_in(run.counts.clone(), &Arc::new(Context::new(Box::new(NoKernel), 0)));
                // Report again which losses go on, as a caller does. The step itself comes below.
                let before = lossy - i32::from(step == LossBegins) + i32::from(step == Lost);
                (0..before).for_each(|_| run.engine.loss_begins());
            }
            match step {
                Sample(input, time) => {
                    let sample = record(&run.inputs[input], time, 5, 0, "");
                    times.extend(run.sample(input, &sample).iter().map(|span| run.times(span)));
                }
                LossBegins => run.engine.loss_begins(),
                Lost => run.engine.lost(0, 0),
            }
        }
        let sums = [sums[0] + run.counts.ended(), sums[1] + run.counts.dropped()];
        assert_eq!(times, [(10, Some(11)), (50, Some(51))], "border {border}");
        // The dropped spans began at 20, 30, 32 and 40.
        assert_eq!(sums, [2, 4], "border {border}");
    }
}

#[test]
fn spans_that_are_open_at_the_end_are_delivered_if_they_are_wanted_and_last_until_the_run_ends() {
    for (attribute, ended, delivered) in [("open", 0, 1), ("open", 500, 1), ("", 500, 0)] {
        let mut run = start(&format!("span:x=s:begin..s:end//key=_tid/{attribute}/")).unwrap();
        let (begin, other) = (record(&run.inputs[0], 10, 1, 0, ""), record(&run.inputs[1], 50, 2, 0, ""));
        run.sample(0, &begin);
        run.sample(1, &other);
        run.engine.events_ended(ended);
        let spans = run.finish();
        assert_eq!(spans.len(), delivered);
        for span in spans {
            assert_eq!(run.times(&span), (10, None));
            let sample = Sample { event: &run.event, record: &span };
            let format = run.event.format.tracepoint().unwrap();
            assert_eq!(sample.field(format.field("open").unwrap()), Some(Value::Bool(true)));
            assert_eq!(sample.field(format.field("duration").unwrap()), Some(Value::Uint(ended.max(50) - 10)));
        }
        assert_eq!((run.counts(), run.counts.open()), ([1, 0, 0, 1], 1));
    }
}

#[test]
fn an_event_that_is_delivered_late_does_not_end_a_later_span() {
    let mut run = start("span:x=s:begin..s:end//key=_tid/").unwrap();
    let records =
        [(0, 100), (1, 90), (1, 130)].map(|(input, time)| (input, record(&run.inputs[input], time, 1, 0, "")));
    let spans: Vec<_> = records.iter().flat_map(|(input, record)| run.sample(*input, record)).collect();
    assert_eq!(spans.iter().map(|span| run.times(span)).collect::<Vec<_>>(), [(100, Some(130))]);
    assert_eq!(run.counts(), [1, 1, 0, 1]);
}

#[test]
fn records_that_are_too_large_together_are_cut_at_their_ends() {
    let mut run = start("span:x=s:begin..s:end//key=_tid/").unwrap();
    let long = "x".repeat(40_000);
    let (begin, end) = (record(&run.inputs[0], 10, 1, 3, &long), record(&run.inputs[1], 20, 1, 4, &long));
    run.sample(0, &begin);
    let spans = run.sample(1, &end);
    assert_eq!(run.times(&spans[0]), (10, Some(20)));
    assert!(spans[0].len() <= usize::from(u16::MAX));
    let Format::Span(format) = &run.event.format else { panic!() };
    let raw = Sample { event: &run.event, record: &spans[0] }.raw();
    for (part, whole) in [(SpanPart::Begin, &begin), (SpanPart::End, &end)] {
        let cut = format.sample(part, raw).unwrap().record;
        assert!(cut.len() > 30_000 && cut[8..] == whole[8..cut.len()]);
        assert_eq!(usize::from(u16::from_ne_bytes([cut[6], cut[7]])), cut.len());
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(i32),
    End(i32),
    Loss,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (0..4i32).prop_map(Step::Begin),
        10 => (0..4i32).prop_map(Step::End),
        1 => Just(Step::Loss),
    ]
}

/// Makes the spans of these steps without a table: open spans are a list of keys and times, the oldest first. Returns the
/// spans and the counts.
fn model(steps: &[Step], max: usize, is_nested: bool) -> (Vec<(u64, u64)>, [u64; 4]) {
    let (mut open, mut spans, mut counts) = (Vec::<(i32, u64)>::new(), Vec::new(), [0; 4]);
    for (time, step) in (1..).zip(steps) {
        match *step {
            Step::Begin(key) => {
                if let (false, Some(at)) = (is_nested, open.iter().position(|(other, _)| *other == key)) {
                    open.remove(at);
                    counts[2] += 1;
                }
                if open.len() == max {
                    open.remove(0);
                    counts[2] += 1;
                }
                open.push((key, time));
                counts[0] += 1;
            }
            Step::End(key) => match open.iter().rposition(|(other, _)| *other == key) {
                Some(at) => {
                    spans.push((open.remove(at).1, time));
                    counts[1] += 1;
                }
                None => counts[3] += 1,
            },
            Step::Loss => {
                counts[2] += open.len() as u64;
                open.clear();
            }
        }
    }
    (spans, counts)
}

proptest! {
    #[test]
    fn spans_are_those_of_a_naive_model(
        steps in prop::collection::vec(step(), 0..200),
        max in 1..6usize,
        is_nested: bool,
        is_text: bool,
    ) {
        let key = if is_text { "text" } else { "number:other" };
        let nested = if is_nested { "nested/" } else { "" };
        let mut run = start(&format!("span:x=s:begin..s:end//key={key}/max-open={max}/{nested}")).unwrap();
        let mut spans = Vec::new();
        for (time, step) in (1..).zip(&steps) {
            let (input, key) = match *step {
                Step::Begin(key) => (0, key),
                Step::End(key) => (1, key),
                Step::Loss => {
                    run.engine.lost(0, time);
                    continue;
                }
            };
            let record = record(&run.inputs[input], time, 1, key, &format!("key{key}"));
            spans.extend(run.sample(input, &record));
        }
        let times: Vec<_> = spans.iter().map(|span| run.times(span)).collect();
        let (expected, counts) = model(&steps, max, is_nested);
        prop_assert_eq!(times, expected.iter().map(|&(begin, end)| (begin, Some(end))).collect::<Vec<_>>());
        prop_assert_eq!(run.counts(), counts);
    }
}

/// A span is dropped if its key begins again, if it ends during a loss, or if it is open at the end of a loss.
#[test]
fn the_tasks_of_dropped_spans_are_counted() {
    let selector = "span:x=s:begin..s:end//key=number:other/";
    let mut run = start(selector).unwrap();
    let sample = |run: &mut Run, input: usize, time, tid, number| {
        let record = record(&run.inputs[input], time, tid, number, "");
        run.sample(input, &record).len()
    };
    let gaps = |run: &Run| -> Vec<(i32, u64, u64)> {
        let of_task = |(task, gaps): (i32, crate::event::TaskGaps)| (task, gaps.count, gaps.time);
        run.counts.incomplete().tasks().into_iter().map(of_task).collect()
    };
    // The key begins again in another task. The dropped span belongs to the task in which it began.
    sample(&mut run, 0, 10, 5, 1);
    sample(&mut run, 0, 11, 6, 1);
    assert_eq!(gaps(&run), [(5, 1, 11)]);
    sample(&mut run, 0, 12, 7, 2);
    sample(&mut run, 0, 13, 7, 3);
    // During the loss, one span ends, and another span stays open.
    run.engine.loss_begins();
    assert_eq!(sample(&mut run, 1, 14, 8, 2), 0);
    run.engine.lost(13, 15);
    assert_eq!(gaps(&run), [(7, 2, 14), (5, 1, 11), (6, 1, 14)]);
    assert_eq!(run.counts(), [4, 0, 4, 0]);
    assert_eq!(sample(&mut run, 0, 16, 9, 4) + sample(&mut run, 1, 17, 9, 4), 1);
    assert_eq!(gaps(&run).len(), 3);
}

proptest! {
    /// Each key has spans, one after another. Whatever is lost, the total time of spans with a delivered begin is covered:
    /// by delivered spans, or by the maximum missing time.
    #[test]
    fn the_times_of_spans_that_end_among_lost_events_are_bounded(
        steps in prop::collection::vec((1..3i32, 1..50u64, 0..9u8), 1..120)
    ) {
        let mut run = start("span:x=s:begin..s:end//key=number:other/").unwrap();
        run.engine.keep_missing();
        let (mut time, mut is_losing) = (0, false);
        let mut open: [Option<(u64, bool)>; 3] = [None; 3];
        let (mut truth, mut found) = ([0; 3], [0; 3]);
        for (key, later, what) in steps {
            time += later;
            match what {
                0 if !is_losing => run.engine.loss_begins(),
                1 if is_losing => run.engine.lost(0, time),
                _ => {
                    // Another ring than the ring of this event may be losing events.
                    let is_delivered = !is_losing || what % 2 == 0;
                    let of_key = &mut open[key as usize];
                    let input = usize::from(of_key.is_some());
                    *of_key = match of_key.take() {
                        Some((begin, was_delivered)) => {
                            truth[key as usize] += if was_delivered { time - begin } else { 0 };
                            None
                        }
                        None => Some((time, is_delivered)),
                    };
                    let record = record(&run.inputs[input], time, key, key, "");
                    let spans = if is_delivered { run.sample(input, &record) } else { Vec::new() };
                    for (begin, end) in spans.iter().map(|span| run.times(span)) {
                        found[key as usize] += end.unwrap() - begin;
                    }
                }
            }
            is_losing = if what < 2 { what == 0 } else { is_losing };
        }
        if is_losing {
            run.engine.lost(0, time);
        }
        run.finish();
        let mut missing = [0; 3];
        let tasks = run.counts.incomplete().tasks();
        tasks.iter().for_each(|(task, gaps)| missing[*task as usize] = gaps.missing);
        let mut in_records = [0; 3];
        let (event, engine) = (&run.event, &mut run.engine);
        engine.take_missing(&mut |record| {
            let sample = Sample { event, record };
            let duration = event.format.tracepoint().and_then(|format| format.field("duration"));
            let Some(Value::Uint(duration)) = duration.and_then(|field| sample.field(field)) else { panic!() };
            in_records[sample.pid_tid().1 as usize] += duration;
        });
        prop_assert_eq!(in_records, missing);
        for key in 1..3 {
            prop_assert!(truth[key] <= found[key] + missing[key], "{:?} {:?} {:?}", truth, found, missing);
        }
    }
}
