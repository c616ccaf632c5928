//! `perf_sample_dict`: everything that is known about a sample.

use std::sync::Arc;

use perf_prof_core::{
    abi::{PERF_RECORD_MISC_CPUMODE_MASK, PERF_SAMPLE_READ, RegisterSet},
    event::{EventType, NO_DATA_SOURCE, Sample, data_source_text, perf_address, perf_ip},
    record::{Counters, Registers, SampleMember},
    value::Value,
};
use pyo3::{
    intern,
    prelude::*,
    types::{PyBytes, PyDict, PyList, PyString, PyTuple},
};

use super::{super::module::Run, branches, frame::FrameObjects, header::HeaderValues};

/// The size of the attr in perf 6.1, in bytes.
const ATTR: usize = 128;

/// Makes the dicts of samples. Without recorded values of counters, perf passes one tuple of zeros.
pub struct SampleDict {
    run: Arc<Run>,
    events: Vec<EventPart>,
    /// The data source of the last sample, and its text.
    data_source: (u64, Py<PyString>),
    /// The values of the counters if none were recorded: zeros.
    no_counts: Py<PyTuple>,
    empty: Py<PyString>,
}

/// The part of the dict that is the same for all samples of an event.
struct EventPart {
    /// A dict with the names of members that every sample has, of which only those are set that are always the same. A
    /// copy of it has room for all values. The names after `comm` are not in it, because the place of a name is the place
    /// where it was set first, and some samples have more names.
    all: Py<PyDict>,
    /// The same for the dict `sample`, up to `addr`.
    numbers: Py<PyDict>,
}

impl SampleDict {
    /// Prepares the dicts for the events of a run.
    pub fn new(py: Python<'_>, run: &Arc<Run>) -> PyResult<SampleDict> {
        let part = |(at, event): (usize, &EventType)| {
            let mut attr = run.attrs.get(at).map(|attr| attr.bytes.clone()).unwrap_or_default();
            attr.resize(ATTR, 0);
            let (all, numbers) = (PyDict::new(py), PyDict::new(py));
            all.set_item(PyString::intern(py, "ev_name"), event.shown_name())?;
            all.set_item(PyString::intern(py, "attr"), PyBytes::new(py, &attr))?;
            for name in ["sample", "raw_buf", "comm"] {
                all.set_item(PyString::intern(py, name), py.None())?;
            }
            for name in ["pid", "tid", "cpu", "ip", "time", "period", "phys_addr", "addr"] {
                numbers.set_item(PyString::intern(py, name), py.None())?;
            }
            Ok(EventPart { all: all.unbind(), numbers: numbers.unbind() })
        };
        Ok(SampleDict {
            events: run.events.iter().enumerate().map(part).collect::<PyResult<_>>()?,
            data_source: (NO_DATA_SOURCE, PyString::new(py, &data_source_text(NO_DATA_SOURCE)).unbind()),
            no_counts: (0u64, 0u64, 0u64).into_pyobject(py)?.unbind(),
            empty: PyString::intern(py, "").unbind(),
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
        let numbers = self.numbers(py, event, sample)?;
        let all = self.events[event].all.bind(py).copy()?;
        all.set_item(intern!(py, "sample"), numbers)?;
        all.set_item(intern!(py, "raw_buf"), PyBytes::new(py, sample.raw()))?;
        all.set_item(intern!(py, "comm"), common.comm(py, sample)?)?;
        let context = &self.run.context;
        if let Some(frame) = perf_ip(sample, context) {
            let place = FrameObjects::of(py, &frame)?;
            if let Some(map) = &place.map {
                all.set_item(intern!(py, "dso"), &map.dso)?;
                all.set_item(intern!(py, "dso_bid"), &map.build_id)?;
                all.set_item(intern!(py, "dso_map_start"), &map.start)?;
                all.set_item(intern!(py, "dso_map_end"), &map.end)?;
            }
            if let Some(symbol) = &place.symbol {
                all.set_item(intern!(py, "symbol"), &symbol.name)?;
                all.set_item(intern!(py, "symoff"), &symbol.offset)?;
            }
        }
        all.set_item(intern!(py, "callchain"), common.callchain(py, sample)?)?;
        let layout = &sample.event.layout;
        let (stack, symbols) = match layout.branches(sample.record) {
            Some(branches) => branches::lists(py, sample, context, branches)?,
            None => (PyList::empty(py), PyList::empty(py)),
        };
        all.set_item(intern!(py, "brstack"), stack)?;
        all.set_item(intern!(py, "brstacksym"), symbols)?;
        let set = context.registers();
        for (key, registers) in [
            (intern!(py, "iregs"), layout.regs_intr(sample.record)),
            (intern!(py, "uregs"), layout.regs_user(sample.record)),
        ] {
            match registers {
                Some(registers) => all.set_item(key, registers_text(&registers, set))?,
                None => all.set_item(key, &self.empty)?,
            }
        }
        Ok(all)
    }

    /// Returns the dict `sample`: the numbers of the sample. Members that were not recorded are 0.
    fn numbers<'py>(&mut self, py: Python<'py>, event: usize, sample: &Sample<'_>) -> PyResult<Bound<'py, PyDict>> {
        let layout = &sample.event.layout;
        let recorded = layout.format.sample_type;
        let number = |member: SampleMember| match recorded & member.bits() {
            0 => None,
            _ => match layout.value(member, sample.record) {
                Some(Value::Uint(number)) => Some(number),
                Some(Value::Int(number)) => Some(number as u64),
                _ => None,
            },
        };
        let dict = self.events[event].numbers.bind(py).copy()?;
        let (pid, tid) = sample.pid_tid();
        // As in perf, the ids of a task that has gone are not -1, but all ones.
        dict.set_item(intern!(py, "pid"), pid as u32)?;
        dict.set_item(intern!(py, "tid"), tid as u32)?;
        dict.set_item(intern!(py, "cpu"), layout.cpu(sample.record).unwrap_or(u32::MAX))?;
        dict.set_item(intern!(py, "ip"), layout.ip(sample.record).unwrap_or(0))?;
        dict.set_item(intern!(py, "time"), sample.time())?;
        dict.set_item(intern!(py, "period"), sample.period())?;
        dict.set_item(intern!(py, "phys_addr"), number(SampleMember::PhysAddr).unwrap_or(0))?;
        let addr = number(SampleMember::Addr);
        dict.set_item(intern!(py, "addr"), addr.unwrap_or(0))?;
        match recorded & PERF_SAMPLE_READ {
            0 => dict.set_item(intern!(py, "values"), PyList::new(py, [&self.no_counts])?)?,
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
        let misc = sample.record.get(4..6).and_then(|misc| misc.try_into().ok()).map_or(0, u16::from_ne_bytes);
        dict.set_item(intern!(py, "cpumode"), misc & PERF_RECORD_MISC_CPUMODE_MASK)?;
        if let Some(addr) = addr {
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

/// Returns the text of registers: their names with 5 characters, and their values.
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
