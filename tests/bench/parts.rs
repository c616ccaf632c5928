//! Measures single functions with criterion.

use std::{hint::black_box, time::Duration};

use criterion::{Criterion, Throughput};
use perf_prof_format::{
    record::{EventIds, Records},
    tracefs::NoKernel,
};

use super::events;

pub fn run() {
    let mut criterion = Criterion::default().measurement_time(Duration::from_secs(2)).without_plots();
    let event = events::event();
    let format = event.format.tracepoint().unwrap();
    let bytes: Vec<u8> = (0..1000).flat_map(|time| events::record(time, 0)).collect();
    let record = events::record(1, 0);

    let mut group = criterion.benchmark_group("parts");
    group.throughput(Throughput::Elements(1000));
    group.bench_function("walk 1000 records", |bencher| {
        bencher.iter(|| Records::new(black_box(&bytes)).map(<[u8]>::len).sum::<usize>())
    });
    group.bench_function("ids of 1000 records", |bencher| {
        let ids = EventIds::new(&[(1000, 0)]);
        let id = |record: &[u8]| event.layout.id(record).and_then(|id| ids.event(id)).unwrap_or(0);
        bencher.iter(|| Records::new(black_box(&bytes)).map(id).sum::<usize>())
    });
    group.throughput(Throughput::Elements(1));
    let raw = event.layout.raw(&record).unwrap();
    for name in ["pid", "comm"] {
        let field = format.field(name).unwrap();
        group.bench_function(format!("value of {name}"), |bencher| bencher.iter(|| field.value(black_box(raw))));
    }
    group.bench_function("text", |bencher| {
        let mut text = Vec::new();
        bencher.iter(|| {
            text.clear();
            format.render(black_box(raw), &NoKernel, &mut text);
            text.len()
        })
    });
    group.finish();
    criterion.final_summary();
}
