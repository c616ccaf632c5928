//! The memory of requests to block devices of which nobody knows which one ends.

use std::{collections::HashMap, sync::Arc};

use perf_prof_events::{
    derive::{Derivation, Span, SpanRule},
    event::{Context, EventType, Flow, Format, SpanCounts},
};
use perf_prof_format::{
    abi::{PERF_SAMPLE_CPU, PERF_SAMPLE_RAW, PERF_SAMPLE_TID, PERF_SAMPLE_TIME},
    record::{SampleLayout, SampleValues},
    spec::{EventKind, parse_events},
    tracefs::{EventFormat, FieldInput, NoKernel},
};

use crate::harness::memory;

/// The source `block-io`, and the events that it gets.
struct Requests {
    events: [EventType; 2],
    counts: Arc<SpanCounts>,
    engine: Box<dyn Derivation>,
}

const START: usize = 0;
const ISSUE: usize = 1;

fn event(name: &str) -> EventType {
    let text = format!(
        "name: {name}\nID: 7\nformat:\n\tfield:unsigned int dev;\toffset:8;\tsize:4;\tsigned:0;\n\
         \tfield:u64 sector;\toffset:16;\tsize:8;\tsigned:0;\n\
         \tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n\
         \tfield:char rwbs[8];\toffset:28;\tsize:8;\tsigned:0;\n\nprint fmt: \"\"\n"
    );
    let format = Format::Tracepoint(Arc::new(EventFormat::parse("block", &text).unwrap()));
    let members = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_RAW;
    EventType { alias: None, format, layout: SampleLayout::new(members, 0), max_stack: None }
}

impl Requests {
    fn start(selector: &str) -> Requests {
        let spec = parse_events(selector).unwrap().remove(0);
        let EventKind::Span(span) = &spec.kind else { panic!("{selector}") };
        let events = ["block_io_start", "block_rq_issue"].map(event);
        let rules = SpanRule::all(span).unwrap();
        let formats = events.each_ref().map(|event| {
            let is_own = |rule: &SpanRule| matches!(&rule.event, EventKind::Tracepoint { name, .. } if *name == event.format.name().rsplit(':').next().unwrap());
            (event.format.clone(), (0..rules.len()).filter(|&at| is_own(&rules[at])).collect())
        });
        let span = Span::new(span, None, None, &formats).unwrap();
        let counts = Arc::new(SpanCounts::default());
        let context = Arc::new(Context::new(Box::new(NoKernel), 0));
        let engine = span.start(&span.event_type(&events).unwrap(), counts.clone(), context).unwrap();
        Requests { events, counts, engine }
    }

    fn event(&mut self, event: usize, sector: u64) {
        let fields = [("dev", 1), ("sector", sector), ("nr_sector", 8)]
            .map(|(name, value)| (name.to_owned(), FieldInput::Int(value.into())));
        let raw = self.events[event].format.tracepoint().unwrap().encode(&HashMap::from(fields)).unwrap();
        let values = SampleValues { pid: 7, tid: 7, time: sector, raw, ..SampleValues::default() };
        let record = self.events[event].layout.encode(&values).unwrap();
        let _ = self.engine.sample(event, &record, &mut |_| Flow::Continue(()));
    }

    /// Two equal requests for each sector. One of them is issued.
    fn pairs(&mut self, sectors: std::ops::Range<u64>) {
        for sector in sectors {
            [START, START, ISSUE].into_iter().for_each(|event| self.event(event, sector));
        }
    }
}

#[test]
fn what_cannot_be_told_apart_takes_no_memory_once_it_is_dropped() {
    let mut requests = Requests::start("block-io/max-open=100/");
    requests.pairs(0..1000);
    let ((), _, taken) = memory::of(|| requests.pairs(1000..20_000));
    assert_eq!((requests.counts.opened(), requests.counts.without_room()), (40_000, 39_900));
    // With 16 bytes for each sector, it would be more.
    assert!(taken < 19_000 * 16 / 2, "{taken} bytes");
}
