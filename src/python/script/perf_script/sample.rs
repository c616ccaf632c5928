//! `perf_sample_dict`: everything that is known about a sample.

use std::sync::Arc;

use perf_prof_events::event::{EventType, NO_DATA_SOURCE, Sample, data_source_text, perf_address, perf_ip};
use perf_prof_format::{
    abi::*,
    record::{Counters, Registers, SampleMember},
    value::Value,
};
use perf_prof_session::spine::About;
use pyo3::{
    intern,
    prelude::*,
    types::{PyBytes, PyDict, PyList, PyString, PyTuple},
};

use super::{address::Address, arguments::set, branches, frame::FrameObjects, header::HeaderValues};

/// The size of the attr in perf 6.1, in bytes. Scripts always get this number of bytes, whatever the size of the attr
/// in the recording is.
const ATTR: usize = 128;

/// The rare members. A sample with one of them has further entries in the dict `sample`, or further texts. Most
/// recordings have none of these members.
const RARE: u64 = PERF_SAMPLE_READ
    | PERF_SAMPLE_ADDR
    | PERF_SAMPLE_WEIGHT
    | PERF_SAMPLE_WEIGHT_STRUCT
    | PERF_SAMPLE_DATA_SRC
    | PERF_SAMPLE_TRANSACTION
    | PERF_SAMPLE_PHYS_ADDR
    | PERF_SAMPLE_BRANCH_STACK
    | PERF_SAMPLE_REGS_USER
    | PERF_SAMPLE_REGS_INTR;

/// Makes the dicts of samples.
pub struct SampleDict {
    run: Arc<About>,
    events: Vec<EventPart>,
    keys: Keys,
    /// The data source of the last sample, with its text.
    data_source: (u64, Py<PyString>),
    /// The counters of a sample without recorded counters: as in perf, one tuple of zeros.
    no_counts: Py<PyTuple>,
}

/// The part of the dict that is the same for all samples of an event.
struct EventPart {
    name: Py<PyString>,
    attr: Py<PyBytes>,
    address: Address,
    /// The dicts of earlier samples without rare members. There are four combinations: with or without a mapping, and
    /// with or without a symbol. A copy of such a dict already has all names in the right order, and the values that
    /// all samples of the event share.
    earlier: [Option<Earlier>; 4],
}

struct Earlier {
    all: Py<PyDict>,
    numbers: Py<PyDict>,
}

/// The keys of the values that differ between the samples of an event.
struct Keys {
    sample: Py<PyString>,
    raw_buf: Py<PyString>,
    comm: Py<PyString>,
    dso: Py<PyString>,
    dso_bid: Py<PyString>,
    dso_map_start: Py<PyString>,
    dso_map_end: Py<PyString>,
    symbol: Py<PyString>,
    symoff: Py<PyString>,
    callchain: Py<PyString>,
    brstack: Py<PyString>,
    brstacksym: Py<PyString>,
    pid: Py<PyString>,
    tid: Py<PyString>,
    cpu: Py<PyString>,
    ip: Py<PyString>,
    time: Py<PyString>,
    period: Py<PyString>,
    values: Py<PyString>,
    cpumode: Py<PyString>,
}

impl Keys {
    fn new(py: Python<'_>) -> Keys {
        let key = |name| PyString::intern(py, name).unbind();
        Keys {
            sample: key("sample"),
            raw_buf: key("raw_buf"),
            comm: key("comm"),
            dso: key("dso"),
            dso_bid: key("dso_bid"),
            dso_map_start: key("dso_map_start"),
            dso_map_end: key("dso_map_end"),
            symbol: key("symbol"),
            symoff: key("symoff"),
            callchain: key("callchain"),
            brstack: key("brstack"),
            brstacksym: key("brstacksym"),
            pid: key("pid"),
            tid: key("tid"),
            cpu: key("cpu"),
            ip: key("ip"),
            time: key("time"),
            period: key("period"),
            values: key("values"),
            cpumode: key("cpumode"),
        }
    }
}

impl SampleDict {
    /// Prepares the dicts for the events of a run.
    pub fn new(py: Python<'_>, run: &Arc<About>) -> PyResult<SampleDict> {
        let part = |(at, event): (usize, &EventType)| {
            let mut attr = run.attrs.get(at).map(|attr| attr.bytes.clone()).unwrap_or_default();
            attr.resize(ATTR, 0);
            let name = PyString::new(py, &event.shown_name()).unbind();
            EventPart {
                name,
                address: Address::of(&attr),
                attr: PyBytes::new(py, &attr).unbind(),
                earlier: Default::default(),
            }
        };
        Ok(SampleDict {
            events: run.events.iter().enumerate().map(part).collect(),
            keys: Keys::new(py),
            data_source: (NO_DATA_SOURCE, PyString::new(py, &data_source_text(NO_DATA_SOURCE)).unbind()),
            no_counts: (0u64, 0u64, 0u64).into_pyobject(py)?.unbind(),
            run: run.clone(),
        })
    }

    /// Makes the dict of a sample of the event with the index `event`.
    pub fn make<'py>(
        &mut self,
        py: Python<'py>,
        event: usize,
        sample: &Sample<'_>,
        common: &mut HeaderValues,
    ) -> PyResult<Bound<'py, PyDict>> {
        let frame = perf_ip(sample, &self.run.context);
        let place = frame.as_ref().map(|frame| FrameObjects::of(py, frame)).transpose()?;
        let has_rare = sample.event.layout.format.sample_type & RARE != 0;
        let has = |is_there: Option<bool>| usize::from(is_there == Some(true));
        let shape = 2 * has(place.map(|place| place.map.is_some())) + has(place.map(|place| place.symbol.is_some()));
        let (all, numbers) = match &self.events[event].earlier[shape] {
            Some(earlier) => (earlier.all.bind(py).copy()?, earlier.numbers.bind(py).copy()?),
            None => {
                let numbers = self.numbers(py, event, sample)?;
                let all = self.all(py, event, sample, place)?;
                if !has_rare {
                    let [all, numbers] = [all.copy()?.unbind(), numbers.copy()?.unbind()];
                    self.events[event].earlier[shape] = Some(Earlier { all, numbers });
                }
                (all, numbers)
            }
        };
        self.set_numbers(&numbers, sample)?;
        let keys = &self.keys;
        all.set_item(&keys.sample, numbers)?;
        all.set_item(&keys.raw_buf, PyBytes::new(py, sample.raw()))?;
        set(&all, &keys.comm, common.comm(py, sample))?;
        if let Some(map) = place.and_then(|place| place.map.as_ref()) {
            all.set_item(&keys.dso, &map.dso)?;
            all.set_item(&keys.dso_bid, &map.build_id)?;
            all.set_item(&keys.dso_map_start, &map.start)?;
            all.set_item(&keys.dso_map_end, &map.end)?;
        }
        if let Some(symbol) = place.and_then(|place| place.symbol.as_ref()) {
            all.set_item(&keys.symbol, &symbol.name)?;
            all.set_item(&keys.symoff, &symbol.offset)?;
        }
        all.set_item(&keys.callchain, common.callchain(py, sample)?)?;
        if !has_rare {
            // The script may have kept the lists of the earlier sample, so this sample gets new lists.
            all.set_item(&keys.brstack, PyList::empty(py))?;
            all.set_item(&keys.brstacksym, PyList::empty(py))?;
        }
        Ok(all)
    }

    /// Makes a dict with all keys. `make` then sets the values that differ between samples.
    fn all<'py>(
        &self,
        py: Python<'py>,
        event: usize,
        sample: &Sample<'_>,
        place: Option<&FrameObjects>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (all, keys, none) = (PyDict::new(py), &self.keys, py.None());
        all.set_item(intern!(py, "ev_name"), &self.events[event].name)?;
        all.set_item(intern!(py, "attr"), &self.events[event].attr)?;
        for key in [&keys.sample, &keys.raw_buf, &keys.comm] {
            all.set_item(key, &none)?;
        }
        if place.is_some_and(|place| place.map.is_some()) {
            for key in [&keys.dso, &keys.dso_bid, &keys.dso_map_start, &keys.dso_map_end] {
                all.set_item(key, &none)?;
            }
        }
        if place.is_some_and(|place| place.symbol.is_some()) {
            all.set_item(&keys.symbol, &none)?;
            all.set_item(&keys.symoff, &none)?;
        }
        all.set_item(&keys.callchain, &none)?;
        let (layout, context) = (&sample.event.layout, &self.run.context);
        let (stack, symbols) = match layout.branches(sample.record) {
            Some(branches) => branches::lists(py, sample, context, branches)?,
            None => (PyList::empty(py), PyList::empty(py)),
        };
        all.set_item(&keys.brstack, stack)?;
        all.set_item(&keys.brstacksym, symbols)?;
        let set = context.registers();
        for (key, registers) in [
            (intern!(py, "iregs"), layout.regs_intr(sample.record)),
            (intern!(py, "uregs"), layout.regs_user(sample.record)),
        ] {
            all.set_item(key, registers.map_or_else(String::new, |registers| registers_text(&registers, set)))?;
        }
        Ok(all)
    }

    /// Makes the dict `sample` with the numbers of the sample. Members that were not recorded are 0. `set_numbers` then
    /// sets the numbers that differ between samples.
    fn numbers<'py>(&mut self, py: Python<'py>, event: usize, sample: &Sample<'_>) -> PyResult<Bound<'py, PyDict>> {
        let layout = &sample.event.layout;
        let number = |member| match layout.value(member, sample.record) {
            Some(Value::Uint(number)) => Some(number),
            Some(Value::Int(number)) => Some(number as u64),
            _ => None,
        };
        let (dict, keys, none) = (PyDict::new(py), &self.keys, py.None());
        for key in [&keys.pid, &keys.tid, &keys.cpu, &keys.ip, &keys.time, &keys.period] {
            dict.set_item(key, &none)?;
        }
        dict.set_item(intern!(py, "phys_addr"), number(SampleMember::PhysAddr).unwrap_or(0))?;
        let addr = number(SampleMember::Addr);
        dict.set_item(intern!(py, "addr"), addr.unwrap_or(0))?;
        match layout.format.sample_type & PERF_SAMPLE_READ {
            0 => dict.set_item(&keys.values, &none)?,
            _ => set_counts(py, &dict, sample)?,
        }
        dict.set_item(intern!(py, "weight"), number(SampleMember::Weight).unwrap_or(0))?;
        dict.set_item(intern!(py, "transaction"), number(SampleMember::Transaction).unwrap_or(0))?;
        let source = number(SampleMember::DataSrc).unwrap_or(NO_DATA_SOURCE);
        if self.data_source.0 != source {
            self.data_source = (source, PyString::new(py, &data_source_text(source)).unbind());
        }
        dict.set_item(intern!(py, "datasrc"), source)?;
        dict.set_item(intern!(py, "datasrc_decode"), &self.data_source.1)?;
        dict.set_item(&keys.cpumode, &none)?;
        if let Some(addr) = addr
            && self.events[event].address == Address::Resolved
        {
            dict.set_item(intern!(py, "addr_correlates_sym"), true)?;
            let frame = perf_address(sample, addr, &self.run.context);
            let place = FrameObjects::of(py, &frame)?;
            if let Some(map) = &place.map {
                dict.set_item(intern!(py, "addr_dso"), &map.dso)?;
                dict.set_item(intern!(py, "addr_dso_bid"), &map.build_id)?;
                dict.set_item(intern!(py, "addr_dso_map_start"), &map.start)?;
                dict.set_item(intern!(py, "addr_dso_map_end"), &map.end)?;
            }
            if let Some(symbol) = &place.symbol {
                dict.set_item(intern!(py, "addr_symbol"), &symbol.name)?;
                dict.set_item(intern!(py, "addr_symoff"), &symbol.offset)?;
            }
        }
        Ok(dict)
    }

    /// Sets the numbers that differ between the samples of an event.
    fn set_numbers(&self, dict: &Bound<'_, PyDict>, sample: &Sample<'_>) -> PyResult<()> {
        let (py, keys, layout) = (dict.py(), &self.keys, &sample.event.layout);
        let (pid, tid) = sample.pid_tid();
        // As in perf, the ids of a task that has gone are 4294967295, not -1.
        dict.set_item(&keys.pid, pid as u32)?;
        dict.set_item(&keys.tid, tid as u32)?;
        dict.set_item(&keys.cpu, layout.cpu(sample.record).unwrap_or(u32::MAX))?;
        dict.set_item(&keys.ip, layout.ip(sample.record).unwrap_or(0))?;
        dict.set_item(&keys.time, sample.time())?;
        dict.set_item(&keys.period, sample.period())?;
        if layout.format.sample_type & PERF_SAMPLE_READ == 0 {
            dict.set_item(&keys.values, PyList::new(py, [&self.no_counts])?)?;
        }
        let misc = sample.record.get(4..6).and_then(|misc| misc.try_into().ok()).map_or(0, u16::from_ne_bytes);
        dict.set_item(&keys.cpumode, misc & PERF_RECORD_MISC_CPUMODE_MASK)
    }
}

/// Adds the values of the counters: a tuple of id, value and number of lost samples for each.
fn set_counts(py: Python<'_>, dict: &Bound<'_, PyDict>, sample: &Sample<'_>) -> PyResult<()> {
    let reading = sample.event.layout.reading(sample.record).unwrap_or_default();
    for (key, time) in
        [(intern!(py, "time_enabled"), reading.time_enabled), (intern!(py, "time_running"), reading.time_running)]
    {
        if let Some(time) = time {
            dict.set_item(key, time)?;
        }
    }
    let counters = match &reading.counters {
        Counters::One(counter) => std::slice::from_ref(counter),
        Counters::Group(group) => group,
    };
    let values = counters.iter().map(|counter| (counter.id.unwrap_or(0), counter.value, counter.lost.unwrap_or(0)));
    dict.set_item(intern!(py, "values"), PyList::new(py, values.collect::<Vec<_>>())?)
}

/// Returns the text of registers: their names, padded to 5 characters, and their values.
fn registers_text(registers: &Registers<'_>, set: RegisterSet) -> String {
    let mut text = String::new();
    for (bit, value) in registers.iter() {
        let name = set.name(registers.abi, bit);
        let name = match (name, set) {
            // perf writes the names of x86 in capital letters.
            (Some(name), RegisterSet::X86) => name.to_ascii_uppercase(),
            (Some(name), _) => name.to_owned(),
            (None, _) => "unknown".to_owned(),
        };
        text.push_str(&format!("{name:>5}:{value:#x} "));
    }
    text
}
