//! Records other than samples: throttling, context switches, and errors in hardware traces. Each has a function of its
//! own, which gets the numbers of the record.

use perf_prof_core::{
    abi::{PERF_RECORD_SWITCH, PERF_RECORD_SWITCH_CPU_WIDE, PERF_RECORD_THROTTLE, PERF_RECORD_UNTHROTTLE},
    record::{OtherRecords, SampleId, Switch, SwitchDirection, Throttle, record_type},
};
use pyo3::{prelude::*, types::PyDict};

use super::{super::module::Run, function::Function, handlers::Raised};

/// The process of the host. Other machines are virtual machines.
const HOST: i32 = -1;

/// The functions for records.
pub struct RecordFunctions {
    throttle: Function,
    unthrottle: Function,
    context_switch: Function,
}

impl RecordFunctions {
    /// The records that these functions get.
    pub fn records() -> OtherRecords {
        OtherRecords::of(&[
            PERF_RECORD_THROTTLE,
            PERF_RECORD_UNTHROTTLE,
            PERF_RECORD_SWITCH,
            PERF_RECORD_SWITCH_CPU_WIDE,
        ])
    }

    /// Prepares the functions.
    pub fn new(py: Python<'_>) -> RecordFunctions {
        RecordFunctions {
            throttle: Function::new(py, "throttle"),
            unthrottle: Function::new(py, "unthrottle"),
            context_switch: Function::new(py, "context_switch"),
        }
    }

    /// Returns whether the script has one of the functions.
    pub fn is_any_defined(&self, main: &Bound<'_, PyDict>) -> bool {
        [&self.throttle, &self.unthrottle, &self.context_switch].iter().any(|of| of.look_up(main).is_some())
    }

    /// Calls the function for a record, if there is one.
    pub fn record(&self, main: &Bound<'_, PyDict>, run: &Run, record: &[u8]) -> Result<(), Raised> {
        let trailer = run.trailers.of(record);
        let called = match record_type(record) {
            PERF_RECORD_THROTTLE => self.throttling(&self.throttle, main, Throttle::parse(record, trailer)),
            PERF_RECORD_UNTHROTTLE => self.throttling(&self.unthrottle, main, Throttle::parse(record, trailer)),
            _ => self.switch(main, Switch::parse(record, trailer)),
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
        // Virtual machines write no records of this type, so the machine of the guest and its CPU are always unknown.
        let called = object.call1((time, cpu, pid, tid, np_pid, np_tid, HOST, out, preempted, 0, -1));
        called.map(drop).map_err(|error| (function, error))
    }
}

/// The task and the CPU of a record, -1 where they were not recorded.
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
