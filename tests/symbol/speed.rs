//! Prints how long symbolization takes, without a limit: `cargo test --release --test integration symbol::speed`.

use std::{path::Path, time::Instant};

use perf_prof_symbols::symbol::{
    AddressKind, Options, Symbolizer,
    elf::{Elf, Symbols},
};

use crate::harness::{
    machine::{Need, skip},
    running::resolve,
};

/// Returns the largest library of the Rust compiler, if it is installed.
fn large() -> Option<std::path::PathBuf> {
    let output = std::process::Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let folder = Path::new(std::str::from_utf8(&output.stdout).ok()?.trim()).join("lib");
    let files =
        std::fs::read_dir(folder).ok()?.flatten().filter(|entry| entry.metadata().is_ok_and(|data| data.is_file()));
    files.max_by_key(|entry| entry.metadata().map_or(0, |data| data.len())).map(|entry| entry.path())
}

#[test]
fn first_touch_of_a_large_binary() {
    let Some(path) = large() else { skip(Need::Compilers, "no rustc") };
    for _ in 0..3 {
        let start = Instant::now();
        let elf = Elf::open(&path).unwrap();
        let symbols = Symbols::read(&[&elf], usize::MAX).unwrap();
        let took = start.elapsed();
        let size = std::fs::metadata(&path).unwrap().len();
        println!(
            "{}: {size} bytes, {} functions, {} bytes kept, in {took:?}",
            path.display(),
            symbols.len(),
            symbols.bytes()
        );
        assert!(symbols.len() > 1000);
    }
}

#[test]
fn cached_frames() {
    let mut symbolizer = Symbolizer::new(Options::default());
    let own = std::process::id();
    let libc = std::fs::read("/proc/self/maps").unwrap();
    let code = perf_prof_symbols::symbol::maps::parse(&libc).filter(|mapping| mapping.executable && mapping.inode != 0);
    let addresses: Vec<u64> = code.flat_map(|mapping| (mapping.start..mapping.end).step_by(0x400)).take(20).collect();
    let first: Vec<_> = addresses.iter().map(|&address| resolve(&mut symbolizer, own, address)).collect();
    let start = Instant::now();
    const ROUNDS: u32 = 100_000;
    for _ in 0..ROUNDS {
        for &address in &addresses {
            std::hint::black_box(symbolizer.user(own, address, u64::MAX - 1, AddressKind::Instruction));
        }
    }
    println!("{} cached frames in {:?}", addresses.len(), start.elapsed() / ROUNDS);
    for (address, first) in addresses.iter().zip(first) {
        assert_eq!(resolve(&mut symbolizer, own, *address), first);
    }
}
