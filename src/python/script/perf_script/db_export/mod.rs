//! Database export. If a script sets `perf_db_export_mode`, it gets the samples of events other than tracepoints as
//! rows of database tables. Each call of a function `NAME_table` passes one row. If a row contains the id of another
//! row, the other row is passed first.
//!
//! `tables` finds and calls the functions. `tasks` keeps the threads and their names, and `task_rows` makes rows from
//! them. `places` makes the rows of files and symbols, and `call_paths` keeps the tree of callers. The rows and their
//! order are those of `tools/perf/util/db-export.c`.

mod branch_types;
mod call_paths;
mod places;
mod tables;
mod task_rows;
mod tasks;

use std::sync::Arc;

use perf_prof_events::event::{NO_DATA_SOURCE, PerfFrame, Sample, perf_address, perf_chain, perf_ip};
use perf_prof_format::{
    abi::{PERF_RECORD_COMM, PERF_RECORD_FORK, PERF_RECORD_SWITCH, PERF_RECORD_SWITCH_CPU_WIDE},
    record::{Record, SampleMember, Switch, SwitchDirection, record_type},
};
use perf_prof_session::spine::About;
use pyo3::{prelude::*, types::PyDict};

use self::{
    call_paths::{CallPaths, Callee, ROOT},
    places::{Place, Places, Unnamed},
    tables::{Cell, Table, Tables, number},
    task_rows::Task,
    tasks::{Origin, Tasks},
};
use super::{
    Raised,
    sample::{UNKNOWN_ID, sample_id},
};

/// The id of the only machine: the host.
const MACHINE: u64 = 1;

/// Returns whether the export uses this record, which is not a sample.
pub fn exports(record: &[u8]) -> bool {
    let kind = record_type(record);
    matches!(kind, PERF_RECORD_COMM | PERF_RECORD_FORK | PERF_RECORD_SWITCH | PERF_RECORD_SWITCH_CPU_WIDE)
}

/// Returns whether the script sets `perf_db_export_mode`.
pub fn is_requested(main: &Bound<'_, PyDict>) -> bool {
    is_set(main, "perf_db_export_mode")
}

fn is_set(main: &Bound<'_, PyDict>, name: &str) -> bool {
    main.get_item(name).ok().flatten().is_some_and(|value| value.is_truthy().unwrap_or(false))
}

/// The export of a run.
pub struct Export {
    run: Arc<About>,
    tables: Tables,
    tasks: Tasks,
    places: Places,
    /// The call paths; `None` if the script does not set `perf_db_export_callchains`.
    paths: Option<CallPaths>,
    /// The id of each event; 0 if no row was passed for the event yet.
    events: Vec<u64>,
    has_machine: bool,
}

impl Export {
    /// Creates the export, and passes the rows that every database contains.
    pub fn new(main: &Bound<'_, PyDict>, run: &Arc<About>) -> Result<Export, Raised> {
        let export = Export {
            run: run.clone(),
            tables: Tables::new(main),
            tasks: Tasks::new(),
            places: Places::default(),
            paths: is_set(main, "perf_db_export_callchains").then(CallPaths::new),
            events: vec![0; run.events.len()],
            has_machine: false,
        };
        for (kind, name) in branch_types::all() {
            let row = [number(kind.into()), Cell::Text(name.as_bytes())];
            export.tables.add(main.py(), Table::BranchType, &row)?;
        }
        Ok(export)
    }

    /// Passes the rows of a sample. `at` is the index of its event.
    pub fn sample(&mut self, py: Python<'_>, at: usize, sample: &Sample<'_>) -> Result<(), Raised> {
        self.event(py, at)?;
        self.machine(py)?;
        let (pid, tid) = sample.pid_tid();
        let thread = self.thread(pid, tid, sample.time());
        let task = self.task(py, thread)?;
        let id = self.tables.next(Table::Sample);
        let run = self.run.clone();
        let context = &run.context;
        let place = match perf_ip(sample, context) {
            Some(frame) => self.places.of(py, &mut self.tables, &frame, Unnamed::InFile)?,
            None => Place::default(),
        };
        let path = self.call_path(py, sample)?;
        let layout = &sample.event.layout;
        let member = |member| layout.number(member, sample.record);
        let addr = member(SampleMember::Addr);
        let to = match addr {
            Some(addr) => {
                let frame = perf_address(sample, addr, context);
                self.places.of(py, &mut self.tables, &frame, Unnamed::InFile)?
            }
            None => Place::default(),
        };
        let cost = layout.access_cost(sample.record);
        let cpu = layout.cpu(sample.record).map_or(-1, |cpu| i64::from(cpu as i32));
        // Only hardware traces provide values for these columns: kinds of branches, transactions, counts of
        // instructions and cycles.
        let not_traced = number(0);
        let row = [
            number(id),
            number(self.events[at]),
            number(MACHINE),
            number(task.thread),
            number(task.comm),
            number(place.dso),
            number(place.symbol),
            number(place.offset),
            number(layout.ip(sample.record).unwrap_or(0)),
            number(sample.time()),
            Cell::Number(cpu),
            number(to.dso),
            number(to.symbol),
            number(to.offset),
            number(addr.unwrap_or(0)),
            number(sample.period()),
            number(cost.weight),
            number(member(SampleMember::Transaction).unwrap_or(0)),
            number(member(SampleMember::DataSrc).unwrap_or(NO_DATA_SOURCE)),
            not_traced,
            not_traced,
            number(path),
            not_traced,
            not_traced,
            not_traced,
            number(sample_id(sample)),
            number(member(SampleMember::StreamId).unwrap_or(UNKNOWN_ID)),
            number(cost.instruction_latency.into()),
        ];
        self.tables.add(py, Table::Sample, &row)
    }

    /// Notes the task of a sample for which no row is passed, as perf does.
    pub fn note_task(&mut self, sample: &Sample<'_>) {
        let (pid, tid) = sample.pid_tid();
        self.tasks.find_or_create(pid, tid);
    }

    /// Notes the new task or the new name in a record. If the record is a context switch, passes its rows.
    pub fn record(&mut self, py: Python<'_>, record: &[u8]) -> Result<(), Raised> {
        let run = self.run.clone();
        let trailer = run.trailers.of(record);
        if let Some(switch) = Switch::parse(record, trailer) {
            return self.switch(py, &switch);
        }
        // As in perf, a record without a sample id gets the highest possible time.
        let time = trailer.and_then(|trailer| trailer.time(record)).unwrap_or(u64::MAX);
        match Record::parse(record) {
            Record::Comm { pid, tid, comm, exec } => {
                let origin = if exec { Origin::Exec } else { Origin::Other };
                self.tasks.named(pid as i32, tid as i32, comm, time, origin);
            }
            Record::Fork { pid, tid, ppid, ptid } => {
                self.tasks.forked((ppid as i32, ptid as i32), (pid as i32, tid as i32), time);
            }
            _ => {}
        }
        Ok(())
    }

    fn switch(&mut self, py: Python<'_>, switch: &Switch) -> Result<(), Raised> {
        self.machine(py)?;
        let ids = |(pid, tid): (u32, u32)| (pid as i32, tid as i32);
        let own = switch.sample_id.pid_tid.map(ids);
        let other = switch.other_task.map(ids);
        let [own_task, other_task] = [self.named_task(py, own)?, self.named_task(py, other)?];
        let is_nobody = |task: Task, ids| task.thread == 0 || ids == Some((0, 0));
        if is_nobody(own_task, own) && is_nobody(other_task, other) {
            return Ok(());
        }
        let (out, into, flags) = match switch.direction {
            SwitchDirection::In => (other_task, own_task, 0),
            SwitchDirection::Out => (own_task, other_task, 1),
            SwitchDirection::OutPreempted => (own_task, other_task, 3),
        };
        let id = self.tables.next(Table::ContextSwitch);
        let row = [
            number(id),
            number(MACHINE),
            number(switch.sample_id.time.unwrap_or(u64::MAX)),
            Cell::Number(switch.sample_id.cpu.map_or(-1, |cpu| i64::from(cpu as i32))),
            number(out.thread),
            number(out.comm),
            number(into.thread),
            number(into.comm),
            Cell::Number(flags),
        ];
        self.tables.add(py, Table::ContextSwitch, &row)
    }

    fn event(&mut self, py: Python<'_>, at: usize) -> Result<(), Raised> {
        if self.events[at] != 0 {
            return Ok(());
        }
        self.events[at] = self.tables.next(Table::Evsel);
        let name = self.run.events[at].shown_name();
        self.tables.add(py, Table::Evsel, &[number(self.events[at]), Cell::Text(name.as_bytes())])
    }

    fn machine(&mut self, py: Python<'_>) -> Result<(), Raised> {
        if self.has_machine {
            return Ok(());
        }
        self.has_machine = true;
        // The host has the process id -1 and an empty root folder.
        self.tables.add(py, Table::Machine, &[number(MACHINE), Cell::Number(-1), Cell::Text(b"")])
    }

    /// Passes the rows of a sample's call path. Returns the id of the path; 0 if the sample has no call path.
    fn call_path(&mut self, py: Python<'_>, sample: &Sample<'_>) -> Result<u64, Raised> {
        let Some(mut paths) = self.paths.take() else { return Ok(0) };
        let found = self.find_call_path(py, sample, &mut paths);
        self.paths = Some(paths);
        found
    }

    fn find_call_path(&mut self, py: Python<'_>, sample: &Sample<'_>, paths: &mut CallPaths) -> Result<u64, Raised> {
        let run = self.run.clone();
        let chain = perf_chain(sample, &run.context);
        let mut path = ROOT;
        for frame in chain.iter().rev() {
            let place = match is_listed(sample, frame, &run) {
                true => self.places.of(py, &mut self.tables, frame, Unnamed::Address)?,
                false => self.places.of_inlined(py, &mut self.tables, frame)?,
            };
            let callee = if place.symbol == 0 { Callee::Address(frame.ip) } else { Callee::Symbol(place.symbol) };
            path = paths.child(path, callee);
        }
        if path == ROOT {
            return Ok(0);
        }
        let (id, rows) = paths.export(path);
        for row in rows {
            let row = [row.id, row.parent_id, row.symbol_id, row.address].map(number);
            self.tables.add(py, Table::CallPath, &row)?;
        }
        Ok(id)
    }
}

/// Returns whether the name of the frame is the name that the symbol table of the file contains for the address.
/// Returns false for an inlined function. Such a frame has a source line.
fn is_listed(sample: &Sample<'_>, frame: &PerfFrame, run: &About) -> bool {
    let name = |frame: &PerfFrame| frame.symbol.as_ref().map(|symbol| symbol.name.clone());
    frame.srcline.is_none() || name(frame) == name(&perf_address(sample, frame.ip, &run.context))
}
