//! Stops a program repeatedly with ptrace, and reads its registers, its stack and its mappings. No events are used.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::unix::{
        fs::{FileExt, MetadataExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use perf_prof_symbols::{
    symbol::CodeImage,
    unwind::{Arch, FileKey, Mapping, Modules, Registers},
};

/// A program under ptrace.
pub struct Traced {
    child: Child,
    mem: File,
}

/// The state of a program at a stop.
#[derive(Clone, Copy)]
pub struct Stop {
    pub regs: libc::user_regs_struct,
}

impl Traced {
    /// Starts a program, which stops before its first instruction.
    pub fn start(path: &Path, args: &[&str]) -> Traced {
        let mut command = Command::new(path);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null());
        // Files that the program creates are in its own folder, and are removed with it. The programs of the system
        // create none.
        command.current_dir(path.parent().unwrap());
        // SAFETY: ptrace and personality only make a system call.
        unsafe {
            command.pre_exec(|| {
                libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
                match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            });
        }
        let child = command.spawn().unwrap();
        let mem = File::open(format!("/proc/{}/mem", child.id())).unwrap();
        let traced = Traced { child, mem };
        assert_eq!(traced.wait(), Some(libc::SIGTRAP));
        traced
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits for the next stop, and returns the signal that caused it. Returns `None` if the program has exited, which
    /// it must do with status 0.
    fn wait(&self) -> Option<i32> {
        let mut status = 0;
        // SAFETY: the status variable lives across the call.
        let pid = unsafe { libc::waitpid(self.pid(), &mut status, 0) };
        assert_eq!(pid, self.pid());
        assert!(!libc::WIFSIGNALED(status), "ended by signal {}", libc::WTERMSIG(status));
        assert!(!libc::WIFEXITED(status) || libc::WEXITSTATUS(status) == 0, "status {}", libc::WEXITSTATUS(status));
        libc::WIFSTOPPED(status).then(|| libc::WSTOPSIG(status))
    }

    fn resume(&self, request: libc::c_uint, signal: i32) {
        // SAFETY: no request used here takes an address.
        let result = unsafe { libc::ptrace(request, self.pid(), 0, signal as libc::c_long) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }

    /// Returns the registers of the stopped program.
    pub fn here(&self) -> Stop {
        // SAFETY: a register structure of all zeroes is valid, and it lives across the call.
        unsafe {
            let mut regs: libc::user_regs_struct = std::mem::zeroed();
            assert_eq!(libc::ptrace(libc::PTRACE_GETREGS, self.pid(), 0, &mut regs), 0);
            Stop { regs }
        }
    }

    /// Continues to the entry of the next system call with this number. Returns `None` if the program exits first.
    pub fn until_call(&self, number: libc::c_long) -> Option<Stop> {
        let mut signal = 0;
        loop {
            self.resume(libc::PTRACE_SYSCALL, signal);
            signal = 0;
            match self.wait()? {
                libc::SIGTRAP => {
                    let stop = self.here();
                    // At the entry of a system call, the kernel shows ENOSYS as the result.
                    if stop.regs.orig_rax == number as u64 && stop.regs.rax as i64 == -i64::from(libc::ENOSYS) {
                        return Some(stop);
                    }
                }
                other => signal = other,
            }
        }
    }

    /// Executes one instruction.
    pub fn step(&self) -> Option<Stop> {
        self.resume(libc::PTRACE_SINGLESTEP, 0);
        self.wait().map(|_| self.here())
    }

    /// Returns a copy of the stack, from the stack pointer upwards, with at most `size` bytes.
    pub fn stack(&self, stop: &Stop, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        let mut got = 0;
        while let Ok(more @ 1..) = self.mem.read_at(&mut bytes[got..], stop.regs.rsp + got as u64) {
            got += more;
        }
        bytes.truncate(got);
        bytes
    }

    pub fn maps(&self) -> Maps {
        Maps::read(self.pid())
    }

    /// Lets the program run to its end.
    pub fn finish(mut self) {
        // SAFETY: PTRACE_DETACH takes no address.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.pid(), 0, 0) };
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Stop {
    /// Returns the registers as perf would sample them.
    pub fn registers(&self) -> Registers {
        let r = &self.regs;
        let values = [
            r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.rip, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13,
            r.r14, r.r15,
        ];
        Registers::from_perf(Arch::x86_64(), 2, Arch::x86_64().sample_regs_user, values)
    }
}

/// The executable mappings of a process.
pub struct Maps {
    pid: i32,
    pub all: Vec<(Mapping, PathBuf)>,
}

impl Maps {
    fn read(pid: i32) -> Maps {
        let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let all = text.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let rights = words.next()?;
            let hex = |text: &str| u64::from_str_radix(text, 16).ok();
            let offset = hex(words.next()?)?;
            let path = PathBuf::from(words.nth(2).unwrap_or_default());
            let file = match fs::metadata(&path) {
                Ok(meta) => Some(FileKey([meta.dev(), meta.ino(), meta.mtime_nsec() as u64, meta.size()])),
                Err(_) => (path == OsStr::new("[vdso]")).then_some(FileKey([0, 1, 0, 0])),
            };
            let mapping = Mapping { start: hex(start)?, end: hex(end)?, offset, file };
            rights.contains('x').then_some((mapping, path))
        });
        Maps { pid, all: all.collect() }
    }

    pub fn at(&self, address: u64) -> Option<&(Mapping, PathBuf)> {
        self.all.iter().find(|(mapping, _)| (mapping.start..mapping.end).contains(&address))
    }
}

impl Modules for Maps {
    fn mapping(&self, address: u64) -> Option<Mapping> {
        self.at(address).map(|&(mapping, _)| mapping)
    }

    fn open(&self, address: u64) -> io::Result<CodeImage> {
        let (mapping, path) = self.at(address).ok_or(io::ErrorKind::NotFound)?;
        if path != OsStr::new("[vdso]") {
            return File::open(path).map(CodeImage::File);
        }
        let mut bytes = vec![0; (mapping.end - mapping.start) as usize];
        File::open(format!("/proc/{}/mem", self.pid))?.read_exact_at(&mut bytes, mapping.start)?;
        Ok(CodeImage::Bytes(bytes.into()))
    }

    fn open_debug(&self, address: u64) -> Option<CodeImage> {
        let (_, path) = self.at(address)?;
        File::open(path.with_extension("debug")).ok().map(CodeImage::File)
    }
}
