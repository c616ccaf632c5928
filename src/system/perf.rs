//! perf_event_open and its ioctls. The callers decide which events are opened.

use std::{
    ffi::CStr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use perf_event_open_sys::{self as sys, bindings};
use perf_prof_format::abi::perf_event_attr;

use super::{
    bpf::Program,
    call::{CallError, check},
    perf_copies,
};

/// What an event is attached to.
#[derive(Clone, Copy, Debug)]
pub enum Attach<'a> {
    /// A thread, on all CPUs or on one CPU.
    Thread(u32, Option<u32>),
    /// All threads on a CPU.
    Cpu(u32),
    /// The threads of a cgroup on a CPU. The descriptor is an open directory of the cgroup.
    Cgroup(BorrowedFd<'a>, u32),
}

/// Returns the attr's bytes in the order in which the kernel reads them.
pub fn attr_bytes(attr: &perf_event_attr) -> [u8; size_of::<perf_event_attr>()] {
    // SAFETY: the attr consists of plain numbers without padding, so all of its bytes are initialised. Any bytes are a
    // valid value of the array.
    unsafe { std::mem::transmute(*attr) }
}

/// Returns the attr with these bytes, in the order in which the kernel reads them. Missing bytes are 0.
pub fn attr_of_bytes(bytes: &[u8]) -> perf_event_attr {
    let mut all = [0; size_of::<perf_event_attr>()];
    let given = bytes.len().min(all.len());
    all[..given].copy_from_slice(&bytes[..given]);
    // SAFETY: the attr consists of plain numbers, for which any bytes are valid.
    unsafe { std::mem::transmute(all) }
}

/// Returns the sample period of an attr, or its sample frequency if the attr uses a frequency.
pub fn sample_period(attr: &perf_event_attr) -> u64 {
    // SAFETY: both members of the union are numbers of 64 bits.
    unsafe { attr.__bindgen_anon_1.sample_period }
}

/// Opens an event. The field `size` of `attr` need not be set.
pub fn open(attr: &perf_event_attr, attach: Attach<'_>) -> Result<OwnedFd, CallError> {
    open_in_group(attr, attach, None)
}

/// Opens an event in the group of `leader`, which must be attached to the same target.
pub fn open_in_group(
    attr: &perf_event_attr,
    attach: Attach<'_>,
    leader: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, CallError> {
    const NO_GROUP: i32 = -1;
    let group = leader.map_or(NO_GROUP, |leader| leader.as_raw_fd());
    let (pid, cpu, flags) = match attach {
        Attach::Thread(tid, cpu) => (tid as i32, cpu.map_or(-1, |cpu| cpu as i32), 0),
        Attach::Cpu(cpu) => (-1, cpu as i32, 0),
        Attach::Cgroup(dir, cpu) => (dir.as_raw_fd(), cpu as i32, bindings::PERF_FLAG_PID_CGROUP),
    };
    let mut attr = perf_event_attr { size: size_of::<perf_event_attr>() as u32, ..*attr };
    let flags = (bindings::PERF_FLAG_FD_CLOEXEC | flags).into();
    // SAFETY: `attr` is a complete perf_event_attr that outlives the call and contains its own size.
    let fd = check("perf_event_open", unsafe { sys::perf_event_open(&mut attr, pid, cpu, group, flags) })?;
    perf_copies::note(fd);
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Enables counting and sampling.
pub fn enable(fd: BorrowedFd<'_>) -> Result<(), CallError> {
    // SAFETY: the ioctl takes no pointer.
    check("ioctl PERF_EVENT_IOC_ENABLE", unsafe { sys::ioctls::ENABLE(fd.as_raw_fd(), 0) }).map(drop)
}

/// Disables counting and sampling.
pub fn disable(fd: BorrowedFd<'_>) -> Result<(), CallError> {
    // SAFETY: the ioctl takes no pointer.
    check("ioctl PERF_EVENT_IOC_DISABLE", unsafe { sys::ioctls::DISABLE(fd.as_raw_fd(), 0) }).map(drop)
}

/// Makes the kernel write the records of the event `fd` to the ring of the event `to`.
pub fn set_output(fd: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), CallError> {
    // SAFETY: the ioctl takes no pointer.
    let result = unsafe { sys::ioctls::SET_OUTPUT(fd.as_raw_fd(), to.as_raw_fd()) };
    check("ioctl PERF_EVENT_IOC_SET_OUTPUT", result).map(drop)
}

/// Sets the filter of a tracepoint. The kernel then writes only the records that match the filter.
pub fn set_filter(fd: BorrowedFd<'_>, filter: &CStr) -> Result<(), CallError> {
    // SAFETY: the kernel only reads the text up to its NUL (perf_event_set_filter copies it).
    let result = unsafe { sys::ioctls::SET_FILTER(fd.as_raw_fd(), filter.as_ptr().cast_mut()) };
    check("ioctl PERF_EVENT_IOC_SET_FILTER", result).map(drop)
}

/// Makes the kernel run a program at each event of a tracepoint, on kernels without links. See
/// [`Program::attach_to_event`].
pub fn set_bpf(fd: BorrowedFd<'_>, program: &Program) -> Result<(), CallError> {
    // SAFETY: the ioctl takes no pointer.
    let result = unsafe { sys::ioctls::SET_BPF(fd.as_raw_fd(), program.as_fd().as_raw_fd() as u32) };
    check("ioctl PERF_EVENT_IOC_SET_BPF", result).map(drop)
}

/// Returns the id that the event's records contain.
pub fn id(fd: BorrowedFd<'_>) -> Result<u64, CallError> {
    let mut id = 0;
    // SAFETY: the kernel writes one u64.
    check("ioctl PERF_EVENT_IOC_ID", unsafe { sys::ioctls::ID(fd.as_raw_fd(), &mut id) })?;
    Ok(id)
}

/// Reads the event's values into `values`. `read_format` of the event's attr determines the number of values. Returns
/// how many values were read.
pub fn read(fd: BorrowedFd<'_>, values: &mut [u64]) -> Result<usize, CallError> {
    // SAFETY: `values` has room for the number of bytes that the call gets.
    let size = unsafe { libc::read(fd.as_raw_fd(), values.as_mut_ptr().cast(), size_of_val(values)) };
    Ok(check("read", size)? as usize / 8)
}
