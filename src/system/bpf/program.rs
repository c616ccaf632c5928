//! BPF programs. Loads programs, with the verifier's log if the verifier refuses a program, and reads the kernel's
//! statistics about programs.

use std::{
    ffi::CStr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use perf_prof_format::abi::bpf::{
    BPF_LINK_CREATE, BPF_OBJ_GET_INFO_BY_FD, BPF_OBJ_NAME_LEN, BPF_PERF_EVENT, BPF_PROG_LOAD, BPF_RAW_TRACEPOINT_OPEN,
    ProgramType,
};

use super::{Attr, call, call_for_descriptor, object_name};
use crate::{CallError, perf};

/// The licence of all programs, in the form that the kernel reads. Some helper functions may only be called by programs
/// with a GPL-compatible licence.
const LICENSE: &CStr = c"Dual MIT/GPL";
/// The size of the buffer for the verifier's log, in bytes. If the log is longer, kernels before 6.4 write the start of
/// the log into the buffer. Later kernels write the end of the log.
const LOG: usize = 64 << 10;

/// A program that the kernel has accepted.
#[derive(Debug)]
pub struct Program(OwnedFd);

/// Why a program could not be loaded.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct LoadError {
    /// The error of bpf(2).
    #[source]
    pub error: CallError,
    /// The verifier's log. It is empty if the verifier did not run, for example because the permission to load programs
    /// is missing.
    pub log: String,
}

#[repr(C)]
struct Load {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; BPF_OBJ_NAME_LEN],
}

#[repr(C)]
struct RawTracepointOpen {
    name: u64,
    prog_fd: u32,
    padding: u32,
}

#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
struct InfoByFd {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

/// The offset of `recursion_misses` in `struct bpf_prog_info`, in bytes.
const RECURSION_MISSES: usize = 208;

// SAFETY: the structures of BPF_PROG_LOAD and BPF_OBJ_GET_INFO_BY_FD, without implicit padding.
unsafe impl Attr for Load {}
// SAFETY: as above.
unsafe impl Attr for InfoByFd {}
// SAFETY: the structure of BPF_RAW_TRACEPOINT_OPEN, without implicit padding.
unsafe impl Attr for RawTracepointOpen {}
// SAFETY: the start of the structure of BPF_LINK_CREATE, without implicit padding.
unsafe impl Attr for LinkCreate {}

impl Program {
    /// Loads a program. Each instruction is a u64 in the byte order of this machine.
    pub fn load(name: &str, program_type: ProgramType, instructions: &[u64]) -> Result<Program, LoadError> {
        let mut attr = Load {
            prog_type: program_type as u32,
            insn_cnt: instructions.len() as u32,
            insns: instructions.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            log_level: 0,
            log_size: 0,
            log_buf: 0,
            kern_version: 0,
            prog_flags: 0,
            prog_name: object_name(name),
        };
        const CALL: &str = "bpf BPF_PROG_LOAD";
        // SAFETY: the kernel reads the instructions and the licence, and writes no text.
        let error = match unsafe { call_for_descriptor(CALL, BPF_PROG_LOAD, &mut attr) } {
            Ok(descriptor) => return Ok(Program(descriptor)),
            Err(error) => error,
        };
        // A check with a log takes more than twice as long. So a program is first loaded without a log, and a second
        // time with a log if it was refused.
        let mut log = vec![0; LOG];
        (attr.log_level, attr.log_size, attr.log_buf) = (1, LOG as u32, log.as_mut_ptr() as u64);
        // SAFETY: as above, and `log` has room for the text.
        match unsafe { call_for_descriptor(CALL, BPF_PROG_LOAD, &mut attr) } {
            Ok(descriptor) => Ok(Program(descriptor)),
            Err(_) => {
                let log = log.split(|&byte| byte == 0).next().unwrap_or_default();
                Err(LoadError { error, log: String::from_utf8_lossy(log).trim_end().to_owned() })
            }
        }
    }

    /// Makes the kernel run the program at a raw tracepoint, until the returned descriptor is closed.
    pub fn attach_to_raw_tracepoint(&self, name: &CStr) -> Result<OwnedFd, CallError> {
        let mut attr = RawTracepointOpen { name: name.as_ptr() as u64, prog_fd: self.0.as_raw_fd() as u32, padding: 0 };
        // SAFETY: the kernel reads the name.
        unsafe { call_for_descriptor("bpf BPF_RAW_TRACEPOINT_OPEN", BPF_RAW_TRACEPOINT_OPEN, &mut attr) }
    }

    /// Makes the kernel run the program at each event of the tracepoint that `event` counts. The program runs for all
    /// tasks and on all CPUs, whatever the target of `event` is, and also while `event` is disabled. Unless the program
    /// returns 1, no perf event of this tracepoint gets a record, in any process. The program stays attached until the
    /// returned link is closed. Kernels before 5.15 have no such links; there the program stays attached until the last
    /// copy of `event` is closed.
    pub fn attach_to_event(&self, event: BorrowedFd<'_>) -> Result<Option<OwnedFd>, CallError> {
        let mut attr = LinkCreate {
            prog_fd: self.0.as_raw_fd() as u32,
            target_fd: event.as_raw_fd() as u32,
            attach_type: BPF_PERF_EVENT,
            flags: 0,
        };
        // SAFETY: the structure has no pointers.
        match unsafe { call_for_descriptor("bpf BPF_LINK_CREATE", BPF_LINK_CREATE, &mut attr) } {
            Err(error) if error.errno() == libc::EINVAL => perf::set_bpf(event, self).map(|()| None),
            link => link.map(Some),
        }
    }

    /// Returns for how many events the program did not run because another BPF program or a call of bpf(2) was active
    /// on the CPU. Kernels before 5.12 do not count these events.
    pub fn recursion_misses(&self) -> Result<u64, CallError> {
        // The kernel writes at most `info_len` bytes, and sets `info_len` to the number of bytes that it has written.
        let mut info = [0u64; (RECURSION_MISSES + 8) / 8];
        let mut attr = InfoByFd {
            bpf_fd: self.0.as_raw_fd() as u32,
            info_len: size_of_val(&info) as u32,
            info: info.as_mut_ptr() as u64,
        };
        // SAFETY: `info` has `info_len` bytes. It is zero, so it asks for none of the arrays that the kernel could fill.
        unsafe { call("bpf BPF_OBJ_GET_INFO_BY_FD", BPF_OBJ_GET_INFO_BY_FD, &mut attr) }?;
        Ok(info[RECURSION_MISSES / 8])
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
