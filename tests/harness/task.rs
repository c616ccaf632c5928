//! What tests and workloads do with their own thread: choose its CPU, set its comm, make system calls.

use std::ffi::CStr;

pub fn gettid() -> u32 {
    // SAFETY: gettid takes no pointer and cannot fail.
    unsafe { libc::gettid() as u32 }
}

/// Makes this many calls of getppid(). No other program calls it.
pub fn getppid(times: usize) {
    for _ in 0..times {
        // The call is made by its number, because a C library may remember the result.
        // SAFETY: getppid takes no pointer and cannot fail.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
}

/// Keeps this thread on a CPU.
pub fn pin(cpu: u32) {
    // SAFETY: a set of all zeroes is empty, and it lives across the calls.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// Returns the CPUs that this thread may use.
pub fn allowed_cpus() -> Vec<u32> {
    // SAFETY: the set lives across the calls.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        set
    };
    // SAFETY: CPU_ISSET only reads the set, and the number is within its size.
    (0..libc::CPU_SETSIZE as u32).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu as usize, &set) }).collect()
}

/// Keeps this thread on the first CPU that it may use.
pub fn pin_to_first() {
    pin(allowed_cpus()[0]);
}

pub fn named(name: &CStr) {
    // SAFETY: the name ends with a NUL and lives across the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Touches this many new pages, which causes a page fault for each.
pub fn touch(pages: usize) {
    let size = pages * 4096;
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses where the new memory is.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), size, access, kind, -1, 0) };
    assert!(memory != libc::MAP_FAILED);
    // A huge page would cause only one fault.
    // SAFETY: the call is for the new memory only.
    unsafe { libc::madvise(memory, size, libc::MADV_NOHUGEPAGE) };
    for at in (0..size).step_by(4096) {
        // SAFETY: the address is in the new memory.
        unsafe { memory.cast::<u8>().add(at).write_volatile(1) };
    }
}
