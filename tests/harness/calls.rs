//! The workload that the tests trace: this test program itself. It executes the operations in its arguments before Rust
//! starts.
//!
//! So all events are known: only tests call `getpgid`, with an argument that numbers the calls. The workload starts in
//! a millisecond, and prints nothing unless an operation does.

use std::ffi::{CStr, c_char, c_int};

/// The first argument of a workload.
pub const WORKLOAD: &str = "--contract-workload";

/// Before `main`, glibc calls the functions in this section with `main`'s arguments.
#[used]
// SAFETY: the section holds pointers to functions of this very type, which the C library's start-up code calls once.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = before_main;

extern "C" fn before_main(argc: c_int, argv: *const *const c_char, _: *const *const c_char) {
    // SAFETY: `argv` holds `argc` strings that end with a NUL and live as long as the process.
    let mut args = (0..argc as usize).map(|at| unsafe { CStr::from_ptr(*argv.add(at)) });
    args.next();
    if args.next().is_some_and(|arg| arg.to_bytes() == WORKLOAD.as_bytes()) {
        work(args);
    }
}

/// The variable that breakpoints watch.
static mut STORED: u64 = 0;

fn pin(cpu: usize) {
    // SAFETY: all zeroes is an empty set, which lives across the calls.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// Computes until the process has used this many more milliseconds of CPU time.
fn burn(milliseconds: i64) {
    let used = || {
        // SAFETY: the call writes the value, which lives across it.
        unsafe {
            let mut time: libc::timespec = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time);
            time.tv_sec as i64 * 1000 + time.tv_nsec as i64 / 1_000_000
        }
    };
    let end = used() + milliseconds;
    while used() < end {
        (0..100_000).for_each(|number| _ = std::hint::black_box(number));
    }
}

/// # Safety
///
/// The file must not be truncated during the call.
unsafe fn read_mapped(path: &CStr) {
    const SIZE: usize = 64 * 4096;
    // SAFETY: the calls are plain system calls, and no byte outside the mapping is read.
    unsafe {
        let faults = || {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage.ru_majflt
        };
        let fd = libc::open(path.as_ptr(), libc::O_RDONLY);
        libc::fsync(fd);
        libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED);
        let pages = libc::mmap(std::ptr::null_mut(), SIZE, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
        libc::madvise(pages, SIZE, libc::MADV_RANDOM);
        let before = faults();
        for at in (0..SIZE).step_by(4096) {
            std::hint::black_box(pages.cast::<u8>().add(at).read_volatile());
        }
        let text = format!("own {}\n", faults() - before);
        libc::write(1, text.as_ptr().cast(), text.len());
    }
}

/// Carries out operations. Each operation has a name, and most have a number.
fn work<'a>(mut args: impl Iterator<Item = &'a CStr>) -> ! {
    // This call comes before the counting, and no test traces it.
    // SAFETY: getppid takes no pointer.
    let perf_prof = unsafe { libc::getppid() };
    // After a failed test, the workload ends by itself.
    // SAFETY: alarm takes no pointer.
    unsafe { libc::alarm(100) };
    let mut call = 0;
    while let Some(operation) = args.next() {
        let mut number = || -> i64 {
            let text = args.next().and_then(|arg| arg.to_str().ok());
            text.and_then(|text| text.parse::<i64>().ok()).unwrap_or(0)
        };
        // SAFETY: the calls are plain system calls, and pointers are to live values.
        unsafe {
            match operation.to_bytes() {
                // Makes this many calls. Their arguments count from 1 over the whole workload.
                b"calls" => {
                    for _ in 0..number() {
                        call += 1;
                        libc::syscall(libc::SYS_getpgid, call);
                    }
                }
                // Makes one call with this argument.
                b"call" => {
                    libc::syscall(libc::SYS_getpgid, number());
                }
                // Makes the system call with this number, with three arguments.
                b"syscall" => {
                    let (call, a, b) = (number(), number(), number());
                    libc::syscall(call, a, b, number());
                }
                b"signal" => {
                    libc::kill(perf_prof, number() as c_int);
                }
                b"sleep-ms" => {
                    libc::usleep(number() as u32 * 1000);
                }
                // Sleeps this many times for a microsecond.
                b"naps" => (0..number()).for_each(|_| {
                    libc::usleep(1);
                }),
                b"comm" => {
                    let name = args.next().unwrap_or_default();
                    libc::prctl(libc::PR_SET_NAME, name.as_ptr());
                }
                // Renames the thread to `worker` this many times.
                b"renames" => {
                    for _ in 0..number() {
                        libc::prctl(libc::PR_SET_NAME, c"worker".as_ptr());
                    }
                }
                b"open" => {
                    let path = args.next().unwrap_or_default();
                    libc::close(libc::open(path.as_ptr(), libc::O_RDONLY));
                }
                // Drops a file from memory, reads it through a mapping, and prints the number of major faults.
                b"read-mapped" => {
                    let path = args.next().unwrap_or_default();
                    read_mapped(path);
                }
                b"fork" => {
                    if libc::fork() == 0 {
                        call += 1;
                        libc::syscall(libc::SYS_getpgid, call);
                        libc::_exit(0);
                    }
                    libc::wait(std::ptr::null_mut());
                }
                // Starts a child on this CPU that computes for this many milliseconds of CPU time.
                b"fork-burn" => {
                    let (cpu, milliseconds) = (number(), number());
                    if libc::fork() == 0 {
                        pin(cpu as usize);
                        burn(milliseconds);
                        libc::_exit(0);
                    }
                }
                b"burn" => burn(number()),
                b"wait-for-children" => while libc::wait(std::ptr::null_mut()) > 0 {},
                // Touches this many new pages.
                b"faults" => {
                    let size = number() as usize * 4096;
                    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                    let pages =
                        libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
                    libc::madvise(pages, size, libc::MADV_NOHUGEPAGE);
                    (0..size).step_by(4096).for_each(|at| pages.cast::<u8>().add(at).write_volatile(1));
                }
                // Prints the address of the variable that `stores` writes.
                b"tell" => {
                    let line = format!("{:p}\n", &raw const STORED);
                    libc::write(libc::STDOUT_FILENO, line.as_ptr().cast(), line.len());
                }
                b"stores" => (0..number() as u64).for_each(|value| (&raw mut STORED).write_volatile(value)),
                // Waits for input, or for its end.
                b"wait-for-input" => {
                    let mut byte = 0u8;
                    libc::read(libc::STDIN_FILENO, (&raw mut byte).cast(), 1);
                }
                // Waits until a signal ends the process.
                b"forever" => loop {
                    libc::pause();
                },
                b"exit" => libc::_exit(number() as c_int),
                _ => libc::_exit(99),
            }
        }
    }
    // SAFETY: the call ends the process, and nothing that Rust does at the end of a program runs.
    unsafe { libc::_exit(0) }
}
