//! BPF: maps, and the loading and attaching of programs. The crate `in_kernel` decides what a program does.
//!
//! bpf(2) takes a command and a structure. Each structure here is the part of `union bpf_attr`
//! (`include/uapi/linux/bpf.h`) that its command reads. If a structure is shorter than the kernel's `union bpf_attr`,
//! the kernel takes the missing bytes as zero.

mod map;
mod program;

pub use map::{CounterPage, Map, MapDefinition};
pub use program::{LoadError, Program};

use std::os::fd::{FromRawFd, OwnedFd};

use super::{
    call::{CallError, check},
    perf_copies,
};

/// A structure that a command of bpf(2) takes.
///
/// # Safety
///
/// The type is `repr(C)`, has no padding, and has the layout that the kernel's command reads.
unsafe trait Attr {}

/// Calls bpf(2).
///
/// # Safety
///
/// The pointers in `attr` are valid for what `command` reads and writes.
unsafe fn call<A: Attr>(name: &str, command: i64, attr: &mut A) -> Result<i32, CallError> {
    let attr = std::ptr::from_mut(attr);
    // SAFETY: the structure outlives the call, and the kernel gets its size. The caller has checked the pointers in it.
    check(name, unsafe { libc::syscall(libc::SYS_bpf, command, attr, size_of::<A>()) } as i32)
}

/// Calls bpf(2) with a command that returns a descriptor. The kernel sets the descriptor's close-on-exec flag.
///
/// # Safety
///
/// As for [`call`].
unsafe fn call_for_descriptor<A: Attr>(name: &str, command: i64, attr: &mut A) -> Result<OwnedFd, CallError> {
    // SAFETY: the caller has checked the pointers.
    let descriptor = unsafe { call(name, command, attr) }?;
    perf_copies::note(descriptor);
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Returns the name of a map or program in the form that the kernel accepts: at most 15 letters, digits and
/// underscores. Tools such as bpftool show this name.
fn object_name(name: &str) -> [u8; perf_prof_format::abi::bpf::BPF_OBJ_NAME_LEN] {
    let mut bytes = [0; perf_prof_format::abi::bpf::BPF_OBJ_NAME_LEN];
    let last = bytes.len() - 1;
    for (place, byte) in bytes[..last].iter_mut().zip(name.bytes()) {
        *place = if byte.is_ascii_alphanumeric() { byte } else { b'_' };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_and_has_only_bytes_that_the_kernel_takes() {
        assert_eq!(object_name("sched:wakeup"), *b"sched_wakeup\0\0\0\0");
        assert_eq!(object_name("sched_process_exec"), *b"sched_process_e\0");
    }
}
