//! Calls the script's functions for records that are not samples: throttling, context switches, errors in hardware
//! traces, and the counts of `perf stat record`.

use perf_prof_format::{
    abi::{
        PERF_RECORD_COMM, PERF_RECORD_FORK, PERF_RECORD_SWITCH, PERF_RECORD_SWITCH_CPU_WIDE, PERF_RECORD_THROTTLE,
        PERF_RECORD_UNTHROTTLE, perf_data::PERF_RECORD_AUXTRACE_ERROR,
    },
    record::{OtherRecords, SampleId, Switch, SwitchDirection, Throttle, record_type},
};
use perf_prof_recordings::AuxtraceError;
use perf_prof_session::{
    recording::stat_counts::{StatCounts, StatError},
    spine::{About, Trailers},
};
use perf_prof_system::output;
use pyo3::{
    prelude::*,
    types::{PyDict, PyTuple},
};

use super::{super::event, function::Function, handlers::Raised};

/// The process id that stands for the host. Virtual machines have other ids.
const HOST: i32 = -1;

/// The functions of the script for records that are not samples.
pub struct RecordFunctions {
    throttle: Function,
    unthrottle: Function,
    context_switch: Function,
    auxtrace_error: Function,
    counts: Option<CountFunctions>,
}

/// The counts of a recording of `perf stat record`, and the functions that get them.
struct CountFunctions {
    counts: StatCounts,
    /// The functions of the events, each with the index of the event's attr.
    events: Vec<(usize, Function)>,
    interval: Function,
    /// The first error about a count that cannot be used. Further errors are not reported: a damaged recording may
    /// contain millions of them.
    failure: Option<StatError>,
}

impl RecordFunctions {
    /// Returns which records these functions and the database export need.
    pub fn records() -> OtherRecords {
        let own = [
            PERF_RECORD_THROTTLE,
            PERF_RECORD_UNTHROTTLE,
            PERF_RECORD_SWITCH,
            PERF_RECORD_SWITCH_CPU_WIDE,
            PERF_RECORD_AUXTRACE_ERROR,
            // The database export needs these records.
            PERF_RECORD_COMM,
            PERF_RECORD_FORK,
        ];
        OtherRecords::of(&own).and(StatCounts::records())
    }

    /// Prepares the functions for a run.
    pub fn new(py: Python<'_>, run: &About) -> RecordFunctions {
        let counts = match &run.trailers {
            Trailers::Live(_) => None,
            Trailers::Recorded(layouts) => Some(CountFunctions {
                counts: StatCounts::new(layouts.clone()),
                events: run
                    .attrs
                    .iter()
                    .zip(&run.events)
                    .map(|(attr, event)| {
                        // As in perf, only colons are replaced. If the name contains other special characters, the
                        // script can define the function only through globals().
                        let name = format!("stat__{}", event.real_name().replace(':', "_"));
                        (attr.index, Function::new(py, &name))
                    })
                    .collect(),
                interval: Function::new(py, "stat__interval"),
                failure: None,
            }),
        };
        RecordFunctions {
            auxtrace_error: Function::new(py, "auxtrace_error"),
            counts,
            throttle: Function::new(py, "throttle"),
            unthrottle: Function::new(py, "unthrottle"),
            context_switch: Function::new(py, "context_switch"),
        }
    }

    /// Returns whether the script has a function for these records. The functions for the counts of `perf stat record`
    /// are not considered.
    pub fn is_any_defined(&self, main: &Bound<'_, PyDict>) -> bool {
        let functions = [&self.throttle, &self.unthrottle, &self.context_switch, &self.auxtrace_error];
        functions.iter().any(|function| function.look_up(main).is_some())
    }

    /// Calls the function for a record, if the script defines it.
    pub fn record(&mut self, main: &Bound<'_, PyDict>, run: &About, record: &[u8]) -> Result<(), Raised> {
        let trailer = run.trailers.of(record);
        let called = match record_type(record) {
            PERF_RECORD_THROTTLE => self.throttling(&self.throttle, main, Throttle::parse(record, trailer)),
            PERF_RECORD_UNTHROTTLE => self.throttling(&self.unthrottle, main, Throttle::parse(record, trailer)),
            PERF_RECORD_SWITCH | PERF_RECORD_SWITCH_CPU_WIDE => self.switch(main, Switch::parse(record, trailer)),
            PERF_RECORD_AUXTRACE_ERROR => self.trace_error(main, AuxtraceError::parse(record)),
            _ => match &mut self.counts {
                Some(counts) => counts.record(main, record),
                None => Ok(()),
            },
        };
        called.map_err(|(function, error)| Raised::new(main.py(), function, error))
    }

    /// Calls `throttle` or `unthrottle(time, id, stream_id, cpu, pid, tid)`.
    fn throttling<'a>(
        &self,
        function: &'a Function,
        main: &Bound<'_, PyDict>,
        throttle: Option<Throttle>,
    ) -> Result<(), (&'a Function, PyErr)> {
        let (Some(object), Some(record)) = (function.look_up(main), throttle) else { return Ok(()) };
        let Task { pid, tid, cpu } = Task::of(&record.sample_id);
        let called = object.call1((record.time, record.id, record.stream_id, cpu, pid, tid));
        called.map(drop).map_err(|error| (function, error))
    }

    /// Calls `auxtrace_error(type, code, cpu, pid, tid, ip, time, msg, cpumode, machine_pid, vcpu)`.
    fn trace_error(&self, main: &Bound<'_, PyDict>, error: Option<AuxtraceError>) -> Result<(), (&Function, PyErr)> {
        let function = &self.auxtrace_error;
        let (Some(object), Some(of)) = (function.look_up(main), error) else { return Ok(()) };
        let call = || {
            let message = event::text(main.py(), &of.message)?;
            let arguments = (of.kind, of.code, of.cpu, of.pid, of.tid, of.ip, of.time, message, of.cpumode);
            let arguments = arguments.into_pyobject(main.py())?;
            object.call1(arguments.add((of.machine_pid, of.vcpu))?.cast_into::<PyTuple>()?)
        };
        call().map(drop).map_err(|error| (function, error))
    }

    /// Calls `context_switch(ts, cpu, pid, tid, np_pid, np_tid, machine_pid, out, out_preempt, machine_pid2, vcpu)`.
    fn switch(&self, main: &Bound<'_, PyDict>, switch: Option<Switch>) -> Result<(), (&Function, PyErr)> {
        let function = &self.context_switch;
        let (Some(object), Some(switch)) = (function.look_up(main), switch) else { return Ok(()) };
        let Task { pid, tid, cpu } = Task::of(&switch.sample_id);
        let (np_pid, np_tid) = switch.other_task.map_or((-1, -1), |(pid, tid)| (pid as i32, tid as i32));
        let (out, preempted) = match switch.direction {
            SwitchDirection::In => (false, false),
            SwitchDirection::Out => (true, false),
            SwitchDirection::OutPreempted => (true, true),
        };
        let time = switch.sample_id.time.unwrap_or(0);
        // Virtual machines write no records of this type. So `machine_pid2` is 0 and `vcpu` is -1, which mean that they
        // are not known.
        let called = object.call1((time, cpu, pid, tid, np_pid, np_tid, HOST, out, preempted, 0, -1));
        called.map(drop).map_err(|error| (function, error))
    }
}

impl CountFunctions {
    /// Adds a record that contains counts. The last record of a round calls `stat__EVENT(cpu, thread, time, val, ena,
    /// run)` for each event, thread and CPU, and then `stat__interval(time)`.
    fn record(&mut self, main: &Bound<'_, PyDict>, record: &[u8]) -> Result<(), (&Function, PyErr)> {
        let round = match self.counts.add(record) {
            Ok(Some(round)) => round,
            Ok(None) => return Ok(()),
            Err(error) => {
                if self.failure.replace(error).is_none() {
                    output::say(format_args!("warning: {error}"));
                }
                return Ok(());
            }
        };
        for of in self.counts.for_scripts() {
            let Some((_, function)) = self.events.iter().find(|(index, _)| *index == of.event) else { continue };
            if let Some(object) = function.look_up(main) {
                let count = of.count;
                let called = object.call1((of.cpu, of.thread, round.time, count.val, count.ena, count.run));
                called.map_err(|error| (function, error))?;
            }
        }
        match self.interval.look_up(main) {
            Some(object) => object.call1((round.time,)).map(drop).map_err(|error| (&self.interval, error)),
            None => Ok(()),
        }
    }
}

/// The task and the CPU of a record; -1 for values that were not recorded.
struct Task {
    pid: i32,
    tid: i32,
    cpu: i32,
}

impl Task {
    fn of(id: &SampleId) -> Task {
        let (pid, tid) = id.pid_tid.map_or((-1, -1), |(pid, tid)| (pid as i32, tid as i32));
        Task { pid, tid, cpu: id.cpu.map_or(-1, |cpu| cpu as i32) }
    }
}
