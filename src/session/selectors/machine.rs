//! The properties of the machine that are needed to resolve an event.

use std::os::fd::AsFd;

use perf_prof_capture::PerfEvent;
use perf_prof_format::abi::*;
use perf_prof_system::{
    CallError, compat,
    perf::{self, Attach},
    pmu::{self, Pmu},
    procfs,
};

/// The properties of the machine that are needed to resolve an event.
pub trait Machine {
    /// Returns the PMU with this name, if there is one.
    fn pmu(&self, name: &str) -> Result<Option<Pmu>, CallError>;
    /// Returns the names of all PMUs.
    fn pmus(&self) -> Vec<String>;
    /// Returns whether the machine can open and sample this event.
    fn can_sample(&self, kind: u32, config: u64) -> bool;
    /// Returns the highest `precise_ip` that the core's PMU supports.
    fn max_precise(&self) -> u8;
    /// Returns the maximum number of samples per second that the kernel allows.
    fn max_sample_rate(&self) -> Option<u64>;
    /// Returns whether samples have the members that they have in the C implementation.
    fn has_c_members(&self) -> bool {
        false
    }
}

/// The machine that perf-prof runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunningMachine;

impl RunningMachine {
    /// Returns whether this process is allowed to trace the kernel.
    pub fn can_trace_kernel(&self) -> bool {
        let config = PERF_COUNT_SW_DUMMY.into();
        let mut attr = perf_event_attr { type_: PERF_TYPE_SOFTWARE, config, ..Default::default() };
        attr.set_disabled(1);
        // This asks the kernel. In a user namespace, the sysctl and the capabilities of this process would give a wrong
        // answer, because the kernel does not accept these capabilities here.
        !perf::open(&attr, Attach::Thread(0, None))
            .is_err_and(|error| [libc::EACCES, libc::EPERM].contains(&error.errno()))
    }

    /// Returns whether an event's PMU can exclude user space or the kernel. PMUs outside of the cores cannot do this
    /// (`PERF_PMU_CAP_NO_EXCLUDE` in `perf_try_init_event()` of kernel/events/core.c).
    pub fn can_exclude(&self, event: &PerfEvent) -> bool {
        if event.kind <= PERF_TYPE_BREAKPOINT {
            return true;
        }
        let mut attr = perf_event_attr { type_: event.kind, config: event.config, ..Default::default() };
        attr.set_disabled(1);
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        !perf::open(&attr, Attach::Thread(0, None)).is_err_and(|error| error.errno() == libc::EINVAL)
    }
}

impl Machine for RunningMachine {
    fn has_c_members(&self) -> bool {
        compat::is_on()
    }

    fn pmu(&self, name: &str) -> Result<Option<Pmu>, CallError> {
        Pmu::read(name)
    }

    fn pmus(&self) -> Vec<String> {
        pmu::names()
    }

    fn can_sample(&self, kind: u32, config: u64) -> bool {
        let mut attr = perf_event_attr { type_: kind, config, ..Default::default() };
        attr.__bindgen_anon_1.sample_period = u64::MAX >> 1;
        attr.set_disabled(1);
        // Every user may sample user space. So if the kernel refuses this event, the machine cannot sample the event.
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        perf::open(&attr, Attach::Thread(0, None)).is_ok_and(|fd| perf::id(fd.as_fd()).is_ok())
    }

    fn max_precise(&self) -> u8 {
        Pmu::read("cpu").ok().flatten().map_or(0, |pmu| pmu.max_precise.min(3))
    }

    fn max_sample_rate(&self) -> Option<u64> {
        procfs::perf_event_max_sample_rate()
    }
}
