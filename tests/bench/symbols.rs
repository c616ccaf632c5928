//! Measures the cost of symbols of programs and libraries: the time of the first lookup in a large library, and the
//! memory after many processes.

use std::{
    fs,
    os::{linux::fs::MetadataExt, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use perf_prof_events::event::{Context, Sink};
use perf_prof_format::{abi::PERF_CONTEXT_USER, tracefs::NoKernel};
use perf_prof_symbols::symbol::{AddressKind, Mapping, Options, Symbolizer, elf::Elf, maps};

use super::{cpu::resident, events, python, table::Table};

const PROCESSES: u64 = 1000;
/// The number of files that each process maps.
const FILES: usize = 5;
const FRAMES: usize = 20;
/// The smallest size of a large library, in bytes.
const LARGE: u64 = 50 << 20;
/// The first process id. It is larger than the id of any real process.
const FIRST: u32 = 0x7f00_0000;

pub fn rows(table: &mut Table) {
    first_touch(table);
    let name = "symbols of 1,000 processes";
    let processes = table.effort.count(PROCESSES);
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--symbols", &processes.to_string()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    let mut numbers = said.split_whitespace().map(|number| number.parse::<f64>().unwrap());
    let mut next = || numbers.next().unwrap();
    let (grown, counted, files, named) = (next(), next(), next(), next());
    let frames = (processes * FRAMES as u64) as f64;
    let mib = f64::from(1 << 20);
    let note = format!(
        "growth of the process's memory; the cache counts {:.1} MiB of at most 256; {files} files, {FILES} in each \
         process; {:.0} % of {} frames have names",
        counted / mib,
        100.0 * named / frames,
        frames
    );
    table.row(name, &[grown / mib], "MiB", &note);
}

/// Returns the largest library of the installed Rust compiler, if it is large enough.
fn large() -> Option<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let folder = Path::new(std::str::from_utf8(&output.stdout).ok()?.trim()).join("lib");
    let size = |path: &PathBuf| fs::metadata(path).ok().filter(|data| data.is_file()).map_or(0, |data| data.st_size());
    let files = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    files.max_by_key(size).filter(|path| size(path) >= LARGE)
}

fn first_touch(table: &mut Table) {
    let name = "symbols of a large library, first touch";
    let Some(path) = large() else { return table.row(name, &[], "ms", "not measured: no such file") };
    let mapping = code(&path, 0).unwrap();
    let mut times = Vec::new();
    let mut bytes = 0;
    for _ in 0..table.effort.runs() {
        let mut symbolizer = Symbolizer::new(Options::default());
        let begun = Instant::now();
        symbolizer.mmap(FIRST, 1, &mapping);
        let middle = mapping.start + (mapping.end - mapping.start) / 2;
        let found = symbolizer.user(FIRST, middle, 2, AddressKind::Instruction);
        times.push(begun.elapsed().as_secs_f64() * 1000.0);
        assert!(found.symbol.is_ok(), "{found:?}");
        bytes = symbolizer.bytes();
    }
    let note = format!(
        "one name in {} ({} MB, in the page cache); it takes {:.0} MiB of memory; no DWARF is read",
        path.file_name().unwrap_or_default().display(),
        fs::metadata(&path).unwrap().len() / 1_000_000,
        bytes as f64 / f64::from(1 << 20)
    );
    table.row(name, &times, "ms", &note);
}

/// Returns the mapping of a file's code. The address of each byte is `at` plus its offset in the file.
fn code(path: &Path, at: u64) -> Option<Mapping> {
    let elf = Elf::open(path).ok()?;
    let text = elf.section(".text")?;
    let offset = elf.offset_of(text.address)?;
    let metadata = fs::metadata(path).ok()?;
    let page = |place: u64| place & !0xfff;
    let device = metadata.dev();
    Some(Mapping {
        start: at + page(offset),
        end: at + page(offset + text.size + 0xfff),
        file_offset: page(offset),
        device: (libc::major(device), libc::minor(device)),
        inode: metadata.ino(),
        generation: 0,
        path: path.into(),
        deleted: false,
        executable: true,
        build_id: None,
    })
}

/// Returns all libraries in the folder of the C library.
fn libraries() -> Vec<PathBuf> {
    let text = fs::read("/proc/self/maps").unwrap();
    let libc = maps::parse(&text).find(|mapping| mapping.path.to_string_lossy().contains("/libc.so")).unwrap().path;
    let files = fs::read_dir(libc.parent().unwrap()).unwrap().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| {
            path.to_string_lossy().contains(".so") && fs::symlink_metadata(path).is_ok_and(|data| data.is_file())
        })
        .collect();
    files.sort();
    files
}

/// Simulates this many processes: each maps some of the machine's libraries, has a sample with a call chain in them,
/// and exits. Prints how much the memory grew, the size that the cache counts, both in bytes, the number of files, and
/// the number of frames with names.
pub fn processes(count: u64) {
    let files = libraries();
    // Each library gets 4 GiB of addresses.
    let codes: Vec<Mapping> =
        files.iter().enumerate().filter_map(|(number, path)| code(path, (number as u64 + 1) << 32)).collect();
    let context = Context::new(Box::new(NoKernel), 0).with_symbol_options(Options::default(), Default::default());
    let run = events::run_with_chains(context);
    let body = "    global n\n    n += sum(frame['symbol'] != 'Unknown' for frame in event._callchain)\n\n\
                def __exit__():\n    print(n)\n";
    let mut program = python::program(run.clone(), body);
    let before = resident();
    for process in 0..count {
        let pid = FIRST + process as u32;
        let own: Vec<&Mapping> =
            (0..FILES).map(|file| &codes[(process as usize * 3 + file * 7) % codes.len()]).collect();
        run.context.with_symbols(|symbols| {
            symbols.processes().exec(pid, 10 * process + 1);
            own.iter().for_each(|mapping| symbols.mmap(pid, 10 * process + 2, mapping));
            symbols.processes().exited(pid, 10 * process + 4);
        });
        let address = |frame: usize| {
            let mapping = own[frame % FILES];
            let size = mapping.end - mapping.start;
            mapping.start + size * (frame as u64 + 1) / (FRAMES as u64 + 2)
        };
        let chain: Vec<u64> = [PERF_CONTEXT_USER].into_iter().chain((0..FRAMES).map(address)).collect();
        let sample = events::sample(pid, 10 * process + 3, 0, Some(&chain));
        events::Memory::of(1, [(0, sample)].into_iter()).deliver(&mut program, &run);
    }
    let grown = resident().saturating_sub(before);
    println!("{grown} {} {}", run.context.with_symbols(|symbols| symbols.bytes()), codes.len());
    // `__exit__` prints how many frames had names.
    program.enter(&mut |program| assert!(program.exit().is_continue()));
    program.clear();
}
