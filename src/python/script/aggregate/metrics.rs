//! Functions for `perf_prof.metrics`: return tables as metrics of Prometheus while their run goes on.

use std::{
    sync::{Arc, Once},
    time::Duration,
};

use perf_prof_events::{
    aggregate::{
        Amount,
        metrics::{Family, MetricKind, write_protobuf, write_text},
    },
    event::{Shortfall, Stats},
};
use perf_prof_session::{
    engine::{kernel_tables::SharedGroups, refresh::Freshness},
    spine::About,
};
use perf_prof_system::{fork_lock, output};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyList},
};

use super::{base::Aggregator, fed_by::FedBy};

/// The first word of the names of all metrics.
const PREFIX: &str = "perf_prof";

/// If tables in the kernel were read longer ago than this, they are read again. Reading them slows the traced programs
/// down, so several scrapers share one reading.
const MAX_AGE: Duration = Duration::from_millis(500);

/// A scrape waits at most this long for a busy run. Prometheus itself waits for 10 s.
const PATIENCE: Duration = Duration::from_secs(5);

/// Says once that a counter is negative. A counter that goes back counts wrongly, and a negative one has gone back.
fn say_negative(families: &[Family]) {
    static SAID: Once = Once::new();
    let is_negative = |(_, amount): &(Vec<String>, Amount)| matches!(amount, Amount::Sum(sum) if *sum < 0);
    let mut counters = families.iter().filter(|family| family.metric.kind == MetricKind::Counter);
    if let Some(family) = counters.find(|family| family.series.iter().any(is_negative)) {
        SAID.call_once(|| {
            output::say(format_args!(
                "warning: {} is negative: its values may be negative, and Prometheus takes a counter that goes back for one \
                 that began again; leave them out, for example with where=\"ret > 0\"",
                family.metric.name
            ));
        });
    }
}

/// A table, and the texts that describe it.
struct Source {
    name: String,
    table: SharedGroups,
    unit: String,
    help: String,
    fed_by: FedBy,
    /// The field whose values the table contains.
    value: Option<String>,
}

impl Source {
    fn of(name: String, aggregator: &Aggregator) -> Source {
        let (table, fed_by) = (aggregator.groups().clone(), aggregator.fed_by());
        let selectors = fed_by.selectors().join(", ");
        let definition = table.lock().definition().clone();
        let help = match &definition.filter {
            Some(filter) => format!("{selectors} where {filter}"),
            None => selectors,
        };
        let (unit, fed_by) = (aggregator.unit().to_owned(), fed_by.as_it_is());
        Source { name, table, unit, help, fed_by, value: definition.value }
    }

    fn family(&self) -> Family {
        // A thread of the script may fork. The fork lock keeps the forked child from inheriting a locked table.
        let _held = fork_lock::hold();
        Family::of_table(PREFIX, &self.name, &self.unit, &self.help, &self.table.lock())
    }
}

fn sources(tables: Vec<(String, Py<Aggregator>)>) -> Vec<Source> {
    tables.into_iter().map(|(name, table)| Source::of(name, table.get())).collect()
}

/// Requests that the runs bring their tables up to date. Returns whether all tables are up to date.
fn refresh(sources: &[Source]) -> bool {
    let mut runs: Vec<Arc<About>> = sources.iter().filter_map(|source| source.fed_by.run()).collect();
    runs.dedup_by(|one, other| Arc::ptr_eq(one, other));
    let asked = runs.iter().filter_map(|run| run.refresh.as_ref()).map(|refresh| refresh.ask(MAX_AGE, PATIENCE));
    asked.filter(|freshness| *freshness == Freshness::AsTheyWere).count() == 0
}

/// Returns the metrics that describe perf-prof itself.
fn own_metrics(sources: &[Source], is_fresh: bool) -> Vec<Family> {
    let mut all: Vec<Arc<Stats>> = sources.iter().filter_map(|source| source.fed_by.stats()).collect();
    all.sort_by_key(Arc::as_ptr);
    all.dedup_by(|one, other| Arc::ptr_eq(one, other));
    let sum = |number: fn(&Stats) -> u64| all.iter().map(|stats| number(stats)).sum();
    let shortfalls: Vec<Shortfall> =
        sources.iter().filter_map(|source| source.fed_by.shortfall(source.value.as_deref())).collect();
    let gaps = shortfalls.iter().map(|shortfall| shortfall.gaps).max().unwrap_or(0);
    let most_missing = all.iter().map(|stats| stats.most_missing(gaps)).max().unwrap_or(gaps);
    let lost: u64 = sum(Stats::total_lost);
    let counter = |name: &str, help: &str, value| Family::of_number(name, help, MetricKind::Counter, &[], value);
    let gauge = |name: &str, help: &str, labels: &[(&str, &str)], value| {
        Family::of_number(name, help, MetricKind::Gauge, labels, value)
    };
    vec![
        counter("perf_prof_delivered_total", "events that were delivered or added up", sum(Stats::total_delivered)),
        counter("perf_prof_lost_total", "events that were lost", lost),
        counter(
            "perf_prof_missing_spans_total",
            "spans that are known to be missing in a table; in the one where most are",
            most_missing,
        ),
        gauge(
            "perf_prof_partial",
            "1 if events were lost or spans are missing in the tables",
            &[],
            (lost != 0 || !shortfalls.is_empty()).into(),
        ),
        gauge(
            "perf_prof_up_to_date",
            "1 if the tables have all events up to the scrape, 0 if the events come too fast",
            &[],
            is_fresh.into(),
        ),
        gauge("perf_prof_build_info", "the version of perf-prof", &[("version", env!("CARGO_PKG_VERSION"))], 1),
    ]
}

fn sources_of_others(tables: Vec<Py<Aggregator>>) -> Vec<Source> {
    sources(tables.into_iter().map(|table| (String::new(), table)).collect())
}

/// Brings the tables up to date. Returns their metrics and the metrics that describe perf-prof itself. The metrics that
/// describe perf-prof also include the losses of the tables in `others`.
fn fresh_families(mut tables: Vec<Source>, others: Vec<Source>) -> Vec<Family> {
    let shown = tables.len();
    tables.extend(others);
    let is_fresh = refresh(&tables);
    let own = own_metrics(&tables, is_fresh);
    let families: Vec<Family> = tables[..shown].iter().map(Source::family).chain(own).collect();
    say_negative(&families);
    families
}

/// Adds the functions to the native module.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(keep_first_keys, module)?)?;
    module.add_function(wrap_pyfunction!(refresh_tables, module)?)?;
    module.add_function(wrap_pyfunction!(metrics_page, module)?)?;
    module.add_function(wrap_pyfunction!(metric_families, module)?)
}

/// Makes full tables keep the keys that they contain: the amounts of new keys are added to others.
#[pyfunction]
fn keep_first_keys(tables: Vec<Py<Aggregator>>) {
    tables.iter().for_each(|table| table.get().groups().lock().keep_first_keys());
}

/// Requests that the runs which fill the tables read the tables in the kernel. Does not do so if they were read within
/// the last half second. Returns False if a run is too busy or has ended; its tables are then unchanged.
#[pyfunction]
fn refresh_tables(py: Python<'_>, tables: Vec<Py<Aggregator>>) -> bool {
    let sources = sources_of_others(tables);
    py.detach(|| refresh(&sources))
}

/// Returns a page with the metrics of tables and the metrics that describe perf-prof itself. The page is text of
/// Prometheus or, with native, protobuf, which supports native histograms. Reads the tables in the kernel first, as
/// refresh_tables does. The losses include those of the tables in others, whose metrics are not on the page.
#[pyfunction]
#[pyo3(signature = (tables, *, native, others = Vec::new()))]
fn metrics_page(
    py: Python<'_>,
    tables: Vec<(String, Py<Aggregator>)>,
    native: bool,
    others: Vec<Py<Aggregator>>,
) -> Py<PyBytes> {
    let (tables, others) = (sources(tables), sources_of_others(others));
    let page = py.detach(|| {
        let (mut text, mut bytes) = (String::new(), Vec::new());
        for family in fresh_families(tables, others) {
            if native { write_protobuf(&family, &mut bytes) } else { write_text(&family, &mut text) }
        }
        if native { bytes } else { text.into_bytes() }
    });
    PyBytes::new(py, &page).unbind()
}

/// A row: the values of the labels, the amount (of a Hist: the sum of its values), and the buckets. A bucket is its
/// largest value, and the number of values up to this value.
type Row = (Vec<String>, f64, Vec<(f64, u64)>);

/// Returns the metrics of tables: (name, kind, help, names of the labels, rows). A row is (values of the labels, sum,
/// buckets). A bucket is (its largest value, the number of values up to it); the last bucket is (inf, the number of all
/// values). With others, also reads the tables in the kernel first, and adds the metrics that describe perf-prof
/// itself, as metrics_page does.
#[pyfunction]
#[pyo3(signature = (tables, *, others = None))]
fn metric_families<'py>(
    py: Python<'py>,
    tables: Vec<(String, Py<Aggregator>)>,
    others: Option<Vec<Py<Aggregator>>>,
) -> PyResult<Bound<'py, PyList>> {
    let (tables, others) = (sources(tables), others.map(sources_of_others));
    let families: Vec<Family> = py.detach(|| match others {
        Some(others) => fresh_families(tables, others),
        None => tables.iter().map(Source::family).collect(),
    });
    let tuple = |family: &Family| {
        let row = |(values, amount): &(Vec<String>, Amount)| -> Row {
            match family.classic(amount) {
                Some(of) => {
                    let buckets = of.buckets.iter().map(|bucket| (bucket.end, bucket.count));
                    (values.clone(), of.sum, buckets.chain([(f64::INFINITY, of.count)]).collect())
                }
                None => (values.clone(), family.value(amount.weight()), Vec::new()),
            }
        };
        let rows: Vec<Row> = family.series.iter().map(row).collect();
        let metric = &family.metric;
        (metric.name.clone(), metric.kind.name(), metric.help.clone(), metric.labels.clone(), rows)
    };
    PyList::new(py, families.iter().map(tuple))
}
