//! `perf_sample_dict`: everything that is known about a sample.

use std::sync::Arc;

use perf_prof_events::event::{EventType, NO_DATA_SOURCE, Sample, data_source_text, perf_address, perf_ip};
use perf_prof_format::{
    abi::*,
    record::{Counters, Registers, SampleMember},
};
use perf_prof_session::spine::About;
use pyo3::{
    intern,
    prelude::*,
    types::{PyBytes, PyDict, PyList, PyString, PyTuple},
};

use super::{
    address::Address,
    arguments::{ArgumentsOf, Makers},
    branches,
    cache::Objects,
    frame::FrameObjects,
    kept_dict::{Begun, Holders, KeptDict, is_unused_list_of},
    reads::{Path, Read},
};

/// The size of the attr in perf 7.2, in bytes. Scripts always get this number of bytes, even if the attr in the
/// recording has another size.
const ATTR: usize = 144;

/// The id of a sample without a recorded id.
pub const UNKNOWN_ID: u64 = u64::MAX;

/// Rare sample members. A sample that contains one of them has further entries in the dict `sample`, or further texts.
/// Most recordings contain none of them.
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

/// Makes the dict `perf_sample_dict` for samples.
pub struct SampleDict {
    run: Arc<About>,
    events: Vec<EventPart>,
    /// The data source of the last sample, and its text.
    data_source: (u64, Py<PyString>),
    /// The counters of a sample without recorded counters. As in perf, there is one tuple, which contains zeros.
    no_counts: Py<PyTuple>,
}

/// What the dicts of all samples of an event have in common.
struct EventPart {
    name: Py<PyString>,
    attr: Py<PyBytes>,
    address: Address,
    /// The dicts of earlier samples without rare members, for the four combinations: with or without a mapping, with or
    /// without a symbol.
    earlier: [Option<Earlier>; 4],
}

/// The dict of all values, and the dict `sample` that it contains.
struct Earlier {
    all: KeptDict,
    numbers: KeptDict,
}

/// The keys whose values differ between the samples of an event.
const KEYS: [&str; 13] = [
    "sample",
    "raw_buf",
    "comm",
    "dso",
    "dso_bid",
    "dso_map_start",
    "dso_map_end",
    "map_pgoff",
    "symbol",
    "symoff",
    "callchain",
    "brstack",
    "brstacksym",
];
const SAMPLE: usize = 0;
const RAW_BUF: usize = 1;
const COMM: usize = 2;
const DSO: usize = 3;
const SYMBOL: usize = 8;
const CALLCHAIN: usize = 10;
const BRSTACK: usize = 11;
const BRSTACKSYM: usize = 12;

/// The keys in the dict `sample` whose values differ between the samples of an event.
const NUMBER_KEYS: [&str; 10] = ["id", "stream_id", "pid", "tid", "cpu", "ip", "time", "period", "values", "cpumode"];
const ID: usize = 0;
const STREAM_ID: usize = 1;
const PID: usize = 2;
const TID: usize = 3;
const CPU: usize = 4;
const IP: usize = 5;
const TIME: usize = 6;
const PERIOD: usize = 7;
const VALUES: usize = 8;
const CPUMODE: usize = 9;

/// The values that a function reads, as bits. There is a bit for each of `KEYS`, followed by a bit for each of
/// `NUMBER_KEYS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted(u32);

impl Wanted {
    const ALL: Wanted = Wanted(u32::MAX);

    /// Returns which of the values the function reads, according to `read`. The names of the mapping and of the symbol
    /// always count as read, because they determine which keys the dict contains.
    pub fn of(read: &Read) -> Wanted {
        let Read::Items(paths) = read else { return Wanted::ALL };
        let numbers = ((1 << NUMBER_KEYS.len()) - 1) << KEYS.len();
        let bit = |keys: &[&str], key: &str| keys.iter().position(|of| *of == key).map_or(0, |at| 1 << at);
        let place = ((1 << CALLCHAIN) - 1) & !((1 << DSO) - 1);
        let of_path = |path: &Path| match path.as_slice() {
            [outer, inner] if outer == KEYS[SAMPLE] => 1 << SAMPLE | bit(&NUMBER_KEYS, inner) << KEYS.len(),
            [outer, ..] if outer == KEYS[SAMPLE] => 1 << SAMPLE | numbers,
            [outer, ..] => match bit(&KEYS, outer) {
                bit if bit & place != 0 => place,
                bit => bit,
            },
            [] => u32::MAX,
        };
        Wanted(paths.iter().map(of_path).fold(0, |all, bits| all | bits))
    }

    #[inline]
    fn has(self, key: usize) -> bool {
        self.0 & 1 << key != 0
    }

    #[inline]
    fn has_number(self, key: usize) -> bool {
        self.has(KEYS.len() + key)
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
            data_source: (NO_DATA_SOURCE, PyString::new(py, &data_source_text(NO_DATA_SOURCE)).unbind()),
            no_counts: (0u64, 0u64, 0u64).into_pyobject(py)?.unbind(),
            run: run.clone(),
        })
    }

    /// Makes the dict of a sample. Only the `wanted` items get the values of this sample. If the sample contains rare
    /// members, all items get its values.
    pub fn make<'py>(
        &mut self,
        py: Python<'py>,
        wanted: Wanted,
        of: ArgumentsOf<'_>,
        makers: &mut Makers,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (event, sample) = (of.at, of.sample);
        let has_rare = sample.event.layout.format.sample_type & RARE != 0;
        let wanted = if has_rare { Wanted::ALL } else { wanted };
        let frame = if wanted.has(DSO) { perf_ip(sample, &self.run.context) } else { None };
        let place = frame.as_ref().map(|frame| FrameObjects::of(py, frame)).transpose()?;
        let has = |is_there: Option<bool>| usize::from(is_there == Some(true));
        let shape = 2 * has(place.map(|place| place.map.is_some())) + has(place.map(|place| place.symbol.is_some()));
        let mut earlier = match self.events[event].earlier[shape].take() {
            Some(earlier) => earlier,
            None => Earlier::new(py, self.all(py, event, sample, place)?, self.numbers(py, event, sample)?),
        };
        let filled = earlier.fill(py, wanted, of, makers, (place, &self.no_counts));
        // A sample with rare members has further values, which differ from sample to sample. So its dicts are not used
        // again.
        if !has_rare {
            self.events[event].earlier[shape] = Some(earlier);
        }
        filled
    }

    /// Makes a dict with all keys. Afterwards, [`Earlier::fill`] sets the values that differ between samples.
    fn all<'py>(
        &self,
        py: Python<'py>,
        event: usize,
        sample: &Sample<'_>,
        place: Option<&FrameObjects>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (all, none) = (PyDict::new(py), py.None());
        all.set_item(intern!(py, "ev_name"), &self.events[event].name)?;
        all.set_item(intern!(py, "attr"), &self.events[event].attr)?;
        for key in [intern!(py, "sample"), intern!(py, "raw_buf"), intern!(py, "comm")] {
            all.set_item(key, &none)?;
        }
        if place.is_some_and(|place| place.map.is_some()) {
            for key in &KEYS[DSO..SYMBOL] {
                all.set_item(key, &none)?;
            }
        }
        if place.is_some_and(|place| place.symbol.is_some()) {
            all.set_item(intern!(py, "symbol"), &none)?;
            all.set_item(intern!(py, "symoff"), &none)?;
        }
        all.set_item(intern!(py, "callchain"), &none)?;
        let (layout, context) = (&sample.event.layout, &self.run.context);
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
            if let Some(registers) = registers {
                all.set_item(key, registers_text(&registers, set))?;
            }
        }
        Ok(all)
    }

    /// Makes the dict `sample` with the numbers of the sample; 0 for members that were not recorded. Afterwards,
    /// [`Earlier::fill`] sets the numbers that differ between samples.
    fn numbers<'py>(&mut self, py: Python<'py>, event: usize, sample: &Sample<'_>) -> PyResult<Bound<'py, PyDict>> {
        let layout = &sample.event.layout;
        let number = |member| layout.number(member, sample.record);
        let (dict, none) = (PyDict::new(py), py.None());
        for key in &NUMBER_KEYS[..VALUES] {
            dict.set_item(key, &none)?;
        }
        dict.set_item(intern!(py, "phys_addr"), number(SampleMember::PhysAddr).unwrap_or(0))?;
        let addr = number(SampleMember::Addr);
        dict.set_item(intern!(py, "addr"), addr.unwrap_or(0))?;
        match layout.format.sample_type & PERF_SAMPLE_READ {
            0 => dict.set_item(intern!(py, "values"), &none)?,
            _ => set_counts(py, &dict, sample)?,
        }
        let cost = layout.access_cost(sample.record);
        dict.set_item(intern!(py, "weight"), cost.weight)?;
        dict.set_item(intern!(py, "ins_lat"), cost.instruction_latency)?;
        dict.set_item(intern!(py, "transaction"), number(SampleMember::Transaction).unwrap_or(0))?;
        let source = number(SampleMember::DataSrc).unwrap_or(NO_DATA_SOURCE);
        if self.data_source.0 != source {
            self.data_source = (source, PyString::new(py, &data_source_text(source)).unbind());
        }
        dict.set_item(intern!(py, "datasrc"), source)?;
        dict.set_item(intern!(py, "datasrc_decode"), &self.data_source.1)?;
        dict.set_item(intern!(py, "cpumode"), &none)?;
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
                dict.set_item(intern!(py, "addr_map_pgoff"), &map.file_offset)?;
            }
            if let Some(symbol) = &place.symbol {
                dict.set_item(intern!(py, "addr_symbol"), &symbol.name)?;
                dict.set_item(intern!(py, "addr_symoff"), &symbol.offset)?;
            }
        }
        Ok(dict)
    }
}

impl Earlier {
    fn new(py: Python<'_>, all: Bound<'_, PyDict>, numbers: Bound<'_, PyDict>) -> Earlier {
        let keys = |names: &[&str]| names.iter().map(|name| PyString::intern(py, name).unbind()).collect::<Vec<_>>();
        Earlier {
            all: KeptDict::new(all.unbind(), keys(&KEYS)),
            numbers: KeptDict::new(numbers.unbind(), keys(&NUMBER_KEYS)),
        }
    }

    /// Sets the values that differ between the samples of an event.
    fn fill<'py>(
        &mut self,
        py: Python<'py>,
        wanted: Wanted,
        of: ArgumentsOf<'_>,
        makers: &mut Makers,
        (place, no_counts): (Option<&FrameObjects>, &Py<PyTuple>),
    ) -> PyResult<Bound<'py, PyDict>> {
        let (all, sample) = (&mut self.all, of.sample);
        match all.begin(py, Holders::Own)? {
            Begun::Again => self.numbers.begin(py, Holders::OwnAndOuter).map(drop)?,
            Begun::New => self.numbers.renew(py)?,
        }
        if wanted.has(SAMPLE) {
            set_numbers(py, &mut self.numbers, wanted, sample, &mut makers.objects, no_counts)?;
        }
        all.set(py, SAMPLE, self.numbers.end(py).into_ptr())?;
        if wanted.has(RAW_BUF) {
            all.set(py, RAW_BUF, PyBytes::new(py, sample.raw()).into_ptr())?;
        }
        if wanted.has(COMM) {
            all.set(py, COMM, makers.common.comm(py, sample))?;
        }
        if let Some(map) = place.and_then(|place| place.map.as_ref()) {
            let values = [
                map.dso.as_any(),
                map.build_id.as_any(),
                map.start.as_any(),
                map.end.as_any(),
                map.file_offset.as_any(),
            ];
            for (at, value) in values.into_iter().enumerate() {
                all.set(py, DSO + at, value.clone_ref(py).into_ptr())?;
            }
        }
        if let Some(symbol) = place.and_then(|place| place.symbol.as_ref()) {
            all.set(py, SYMBOL, symbol.name.clone_ref(py).into_ptr())?;
            all.set(py, SYMBOL + 1, symbol.offset.clone_ref(py).into_ptr())?;
        }
        if wanted.has(CALLCHAIN) {
            makers.common.set_callchain(py, of.at, sample, all, CALLCHAIN)?;
        }
        let has_branches = sample.event.layout.format.sample_type & PERF_SAMPLE_BRANCH_STACK != 0;
        for list in [BRSTACK, BRSTACKSYM] {
            if wanted.has(list) && !has_branches {
                all.set_empty_list(py, list)?;
            }
        }
        Ok(all.end(py))
    }
}

/// Sets the numbers that differ between the samples of an event.
fn set_numbers(
    py: Python<'_>,
    dict: &mut KeptDict,
    wanted: Wanted,
    sample: &Sample<'_>,
    objects: &mut Objects,
    no_counts: &Py<PyTuple>,
) -> PyResult<()> {
    let layout = &sample.event.layout;
    let (pid, tid) = sample.pid_tid();
    let mut set = |at: usize, number: u64| match wanted.has_number(at) {
        true => dict.set_of_number(py, at, number, || objects.unsigned(py, number)),
        false => Ok(()),
    };
    set(ID, sample_id(sample))?;
    set(STREAM_ID, layout.number(SampleMember::StreamId, sample.record).unwrap_or(UNKNOWN_ID))?;
    // As in perf, the ids of a task that no longer exists are 4294967295 and not -1.
    set(PID, (pid as u32).into())?;
    set(TID, (tid as u32).into())?;
    set(CPU, layout.cpu(sample.record).unwrap_or(u32::MAX).into())?;
    set(IP, layout.ip(sample.record).unwrap_or(0))?;
    set(PERIOD, sample.period())?;
    let misc = sample.record.get(4..6).and_then(|misc| misc.try_into().ok()).map_or(0, u16::from_ne_bytes);
    set(CPUMODE, (misc & PERF_RECORD_MISC_CPUMODE_MASK).into())?;
    if wanted.has_number(TIME) {
        dict.set(py, TIME, objects.rare(py, sample.time()))?;
    }
    let has_counts = layout.format.sample_type & PERF_SAMPLE_READ != 0;
    if wanted.has_number(VALUES) && !has_counts && !is_unused_list_of(py, dict.held(VALUES), no_counts) {
        dict.set(py, VALUES, PyList::new(py, [no_counts])?.into_ptr())?;
    }
    Ok(())
}

/// Returns the id of the event that the sample contains.
pub fn sample_id(sample: &Sample<'_>) -> u64 {
    let number = |member| sample.event.layout.number(member, sample.record);
    number(SampleMember::Id).or_else(|| number(SampleMember::Identifier)).unwrap_or(UNKNOWN_ID)
}

/// Adds the values of the counters: a tuple (id, value, number of lost samples) for each counter.
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

/// Returns the text of registers: the names, padded to 5 characters, and the values.
fn registers_text(registers: &Registers<'_>, set: RegisterSet) -> String {
    let mut text = String::new();
    for (bit, value) in registers.iter() {
        let name = set.name(registers.abi, bit);
        let name = match (name, set) {
            // perf writes the register names of x86 in capital letters.
            (Some(name), RegisterSet::X86) => name.to_ascii_uppercase(),
            (Some(name), _) => name.to_owned(),
            (None, _) => "unknown".to_owned(),
        };
        text.push_str(&format!("{name:>5}:{value:#x} "));
    }
    text
}
