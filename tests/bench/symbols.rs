//! What symbols of programs and libraries cost: the time of the first look-up in a large one, and the memory after many
//! processes.

use std::{
    fs,
    os::{linux::fs::MetadataExt, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use perf_prof::{
    abi::PERF_CONTEXT_USER,
    event::{Context, Sink},
    symbol::{Mapping, Options, Place, Symbolizer, elf::Elf, maps},
    tracefs::NoKernel,
};

use super::{cpu::resident, events, python, table::Table};

const PROCESSES: u64 = 1000;
/// Files that each of them maps.
const FILES: usize = 5;
const FRAMES: usize = 20;
/// A library that is smaller is not a large one.
const LARGE: u64 = 50 << 20;
/// Process ids that there are not.
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
        "that the process's memory grew by; {:.1} MiB by the cache's own count, of 256; {files} files, {FILES} in each \
         process, {:.0} % of {} frames named",
        counted / mib,
        100.0 * named / frames,
        frames
    );
    table.row(name, &[grown / mib], "MiB", &note);
}

/// The largest library of the compiler that built this.
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
        let found = symbolizer.user(FIRST, middle, 2, Place::Exact);
        times.push(begun.elapsed().as_secs_f64() * 1000.0);
        assert!(found.symbol.is_ok(), "{found:?}");
        bytes = symbolizer.bytes();
    }
    let note = format!(
        "one name in {}, {} MB in the page cache; {:.0} MiB of memory then, no DWARF read",
        path.file_name().unwrap_or_default().display(),
        fs::metadata(&path).unwrap().len() / 1_000_000,
        bytes as f64 / f64::from(1 << 20)
    );
    table.row(name, &times, "ms", &note);
}

/// The code of a file, as it would be mapped: addresses are `at` and the place in the file.
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

/// The libraries beside the C library.
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

/// As many processes that map some of the machine's libraries, have samples with call chains there, and exit. Prints by
/// how much memory grew, what the cache counts, how many files there were, and how many frames had names.
pub fn processes(count: u64) {
    let files = libraries();
    // A library every 4 GiB of addresses.
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
    // Prints how many frames had names.
    program.enter(&mut |program| assert!(program.exit().is_continue()));
    program.clear();
}
