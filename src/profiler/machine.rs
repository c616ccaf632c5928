//! What resolving an event asks of the machine.

use std::os::fd::AsFd;

use crate::{
    abi::*,
    sys::{
        CallError,
        perf::{self, Attach},
        pmu::{self, Pmu},
        procfs,
    },
};

/// What resolving an event asks of the machine.
pub trait Machine {
    /// The PMU with this name.
    fn pmu(&self, name: &str) -> Result<Option<Pmu>, CallError>;
    /// The names of all PMUs.
    fn pmus(&self) -> Vec<String>;
    /// Whether an event can be opened and sampled.
    fn samples(&self, kind: u32, config: u64) -> bool;
    /// How precise the core's PMU can be.
    fn max_precise(&self) -> u8;
    /// The most samples per second.
    fn max_sample_rate(&self) -> Option<u64>;
}

/// This machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunningMachine;

impl RunningMachine {
    /// Whether we may see what happens in the kernel.
    pub fn sees_kernel(&self) -> bool {
        let config = PERF_COUNT_SW_DUMMY.into();
        let mut attr = perf_event_attr { type_: PERF_TYPE_SOFTWARE, config, ..Default::default() };
        attr.set_disabled(1);
        // The kernel's answer, and not what follows from sysctl and capabilities: a user namespace's count for nothing here.
        !perf::open(&attr, Attach::Thread(0, None))
            .is_err_and(|error| [libc::EACCES, libc::EPERM].contains(&error.errno()))
    }
}

impl Machine for RunningMachine {
    fn pmu(&self, name: &str) -> Result<Option<Pmu>, CallError> {
        Pmu::read(name)
    }

    fn pmus(&self) -> Vec<String> {
        pmu::names()
    }

    fn samples(&self, kind: u32, config: u64) -> bool {
        let mut attr = perf_event_attr { type_: kind, config, ..Default::default() };
        attr.__bindgen_anon_1.sample_period = u64::MAX >> 1;
        attr.set_disabled(1);
        // What everybody may sample, so that it is the machine that says no.
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
