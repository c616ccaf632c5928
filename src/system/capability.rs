//! The capabilities of the calling thread. A user without privileges gets capabilities from the executable file
//! (`setcap`).

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::process::effective_user;

/// `CAP_DAC_READ_SEARCH`: the right to read all files and to search all folders. The numbers of the capabilities come
/// from `include/uapi/linux/capability.h`.
const CAP_DAC_READ_SEARCH: u32 = 2;
/// `CAP_IPC_LOCK`.
pub const CAP_IPC_LOCK: u32 = 14;
/// `CAP_SYS_PTRACE`.
pub const CAP_SYS_PTRACE: u32 = 19;
/// `CAP_SYS_ADMIN`.
pub const CAP_SYS_ADMIN: u32 = 21;
/// `CAP_SYSLOG`.
pub const CAP_SYSLOG: u32 = 34;
/// `CAP_PERFMON`, since Linux 5.8.
pub const CAP_PERFMON: u32 = 38;

/// True while CAP_DAC_READ_SEARCH is in the permitted set, but was removed from the effective set.
static IS_HELD_BACK: AtomicBool = AtomicBool::new(false);

/// One half of the capability sets: 32 bits of each set, as in `struct __user_cap_data_struct`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// `_LINUX_CAPABILITY_VERSION_3`: the layout for 64 capabilities.
const VERSION: u32 = 0x2008_0522;

/// Returns the capability sets of this thread, with capget(2). /proc/self/status would also contain them. But if procfs
/// were not mounted, or if no descriptor were free, every capability would seem to be missing.
fn sets() -> Option<[Sets; 2]> {
    let (mut header, mut sets) = (Header { version: VERSION, pid: 0 }, [Sets::default(); 2]);
    // SAFETY: both structures have the layout that the kernel expects of this version, and outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    (result == 0).then_some(sets)
}

fn set(sets: [Sets; 2]) -> bool {
    let mut header = Header { version: VERSION, pid: 0 };
    // SAFETY: as for `capget`; the kernel only reads the sets.
    unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) == 0 }
}

/// Returns whether this thread has a capability in its effective set.
pub fn has(number: u32) -> bool {
    sets().is_some_and(|sets| sets[number as usize / 32].effective >> (number % 32) & 1 != 0)
}

/// Removes CAP_DAC_READ_SEARCH from the effective set. From now on, files are opened with the rights of the user,
/// except in [`with_right_to_read`]. For root, nothing changes, because root may read all files anyway. Must be called
/// before other threads exist.
pub fn hold_back_right_to_read() {
    let Some(mut sets) =
        sets().filter(|sets| effective_user() != 0 && sets[0].permitted >> CAP_DAC_READ_SEARCH & 1 != 0)
    else {
        return;
    };
    sets[0].effective &= !(1 << CAP_DAC_READ_SEARCH);
    IS_HELD_BACK.store(set(sets), Relaxed);
}

/// Returns whether [`hold_back_right_to_read`] has removed CAP_DAC_READ_SEARCH from the effective set.
pub fn is_right_to_read_held_back() -> bool {
    IS_HELD_BACK.load(Relaxed)
}

/// Calls `read` with CAP_DAC_READ_SEARCH in the effective set of this thread, if [`hold_back_right_to_read`] has
/// removed it.
pub fn with_right_to_read<R>(read: impl FnOnce() -> R) -> R {
    let before = if is_right_to_read_held_back() { sets() } else { None };
    let Some(before) = before else { return read() };
    let mut raised = before;
    raised[0].effective |= 1 << CAP_DAC_READ_SEARCH;
    set(raised);
    let result = read();
    set(before);
    result
}

/// Removes CAP_DAC_READ_SEARCH from all sets for good, if [`hold_back_right_to_read`] was called. Must be called before
/// other threads exist, and before code of the user runs in this process.
pub fn give_up_right_to_read() {
    if !IS_HELD_BACK.swap(false, Relaxed) {
        return;
    }
    if let Some(mut sets) = sets() {
        let rest = !(1 << CAP_DAC_READ_SEARCH);
        sets[0].effective &= rest;
        sets[0].permitted &= rest;
        sets[0].inheritable &= rest;
        set(sets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_those_in_procfs() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        let shown = u64::from_str_radix(line.trim(), 16).unwrap();
        let told = (0..64).filter(|&number| has(number)).fold(0, |all, number| all | 1 << number);
        assert_eq!(told, shown);
    }
}
