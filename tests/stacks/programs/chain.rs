//! `chain::rare <- chain::inner::<u32> <- <chain::Task as chain::Work>::run <- chain::outer::{closure#0} <- chain::outer <- chain::main`.

use std::{arch::asm, hint::black_box};

#[inline(never)]
fn rare(n: u64) -> u64 {
    // SAFETY: getppid has no arguments, and all registers that the call overwrites are named.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", inout("rax") 110u64 => _, out("rcx") _, out("r11") _);
    }
    // SAFETY: getppid has no arguments, and the only register that the call overwrites is named.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", in("x8") 173u64, out("x0") _);
    }
    black_box(n) + 1
}

#[inline(never)]
fn inner<T: Into<u64>>(value: T) -> u64 {
    let n = rare(value.into());
    black_box(n) * 2
}

trait Work {
    fn run(&self, n: u32) -> u64;
}

struct Task(u32);

impl Work for Task {
    #[inline(never)]
    fn run(&self, n: u32) -> u64 {
        let n = inner::<u32>(n + self.0);
        black_box(n) + 3
    }
}

#[inline(never)]
fn outer(work: &dyn Work, n: u32) -> u64 {
    let closure: &dyn Fn(u32) -> u64 = &|m| {
        let n = work.run(m + 1);
        black_box(n) + 4
    };
    let n = black_box(closure)(n);
    black_box(n) + 5
}

fn main() {
    for n in 0..25 {
        black_box(outer(black_box(&Task(7)), n));
    }
}
