//! The history of processes: what was mapped at which time, and what is kept after their exit.

use std::{path::Path, process::Command};

use perf_prof_symbols::symbol::{AddressKind, Mapping, Options, Processes, Reason, Symbolizer, elf::Elf};
use tempfile::tempdir;

use crate::harness::{
    compile::compile,
    machine::{Need, skip},
    running::{PROGRAM, Running, names, resolve, shown, symbolizer},
};

fn mapping(start: u64, path: &str) -> Mapping {
    Mapping {
        start,
        end: start + 0x1000,
        file_offset: 0,
        device: (8, 1),
        inode: 7,
        generation: 0,
        path: Path::new(path).into(),
        deleted: false,
        executable: true,
        build_id: None,
    }
}

/// The id of a process that does not exist. Higher ids do not exist either.
const FIRST: u32 = 0x7fff_0000;

fn at(processes: &mut Processes, pid: u32, address: u64, time: u64) -> String {
    processes
        .locate(pid, address, time)
        .map_or_else(|reason| format!("{reason:?}"), |found| found.mapping.file.dso.to_string())
}

#[test]
fn mappings_exec_and_fork_through_time() {
    let mut processes = Processes::default();
    let (parent, child) = (FIRST, FIRST + 1);
    processes.exec(parent, 100);
    processes.mmap(parent, 110, &mapping(0x1000, "/a"));
    // The earlier of these two mappings is reported last.
    processes.mmap(parent, 140, &mapping(0x1000, "/c"));
    processes.mmap(parent, 130, &mapping(0x1000, "/b"));
    processes.forked(parent, child, 135);
    processes.mmap(child, 136, &mapping(0x2000, "/only child"));
    processes.exec(parent, 200);
    processes.mmap(parent, 210, &mapping(0x1000, "/new"));
    let mut of = |pid, address, time| at(&mut processes, pid, address, time);
    assert_eq!(of(parent, 0x1800, 110), "/a");
    assert_eq!(of(parent, 0x1800, 131), "/b");
    assert_eq!(of(parent, 0x1800, 199), "/c");
    assert_eq!(of(parent, 0x1800, 300), "/new");
    // For times before the first known mapping, this mapping is the best guess.
    assert_eq!(of(parent, 0x1800, 5), "/a");
    assert_eq!(of(child, 0x1800, 500), "/b");
    assert_eq!((of(child, 0x2000, 500), of(parent, 0x2000, 150)), ("/only child".into(), "NotMapped".into()));
    assert_eq!(of(child, 0x2fff, 500), "/only child");
    assert_eq!(of(child, 0x3000, 500), "NotMapped");
}

#[test]
fn mappings_reported_before_a_late_exec_belong_to_its_image() {
    let mut processes = Processes::default();
    processes.exec(FIRST, 100);
    processes.mmap(FIRST, 110, &mapping(0x1000, "/old"));
    processes.mmap(FIRST, 210, &mapping(0x2000, "/new"));
    processes.mmap(FIRST, 220, &mapping(0x3000, "/its library"));
    let before = processes.image(FIRST, 250).unwrap().id;
    processes.exec(FIRST, 200);
    let (old, new) = (processes.image(FIRST, 150).unwrap().id, processes.image(FIRST, 250).unwrap().id);
    assert!(old != new && old != before && new != before);
    let mut of = |address, time| at(&mut processes, FIRST, address, time);
    assert_eq!((of(0x2000, 250), of(0x3000, 250)), ("/new".into(), "/its library".into()));
    // A sample in exec contains addresses of the caller.
    assert_eq!((of(0x1000, 250), of(0x4000, 250)), ("/old".into(), "NotMapped".into()));
    assert_eq!((of(0x1000, 150), of(0x2000, 150)), ("/old".into(), "NotMapped".into()));
}

#[test]
fn mappings_reported_before_a_late_fork_belong_to_its_image() {
    let mut processes = Processes::default();
    let (parent, child) = (FIRST, FIRST + 1);
    processes.mmap(parent, 10, &mapping(0x1000, "/parent"));
    // Another process had the id before. The child's fork is reported last.
    processes.mmap(child, 20, &mapping(0x2000, "/another"));
    processes.mmap(child, 120, &mapping(0x3000, "/library of the child"));
    processes.exec(child, 200);
    processes.mmap(child, 150, &mapping(0x4000, "/another library"));
    processes.forked(parent, child, 100);
    let mut of = |address, time| at(&mut processes, child, address, time);
    assert_eq!((of(0x1000, 160), of(0x3000, 160)), ("/parent".into(), "/library of the child".into()));
    assert_eq!(of(0x4000, 160), "/another library");
    assert_eq!((of(0x2000, 50), of(0x2000, 160)), ("/another".into(), "NotMapped".into()));
    assert_eq!((of(0x1000, 250), of(0x2000, 250)), ("/parent".into(), "ProcessGone".into()));
}

#[test]
fn a_mapping_before_the_first_known_image_belongs_to_a_fork_reported_later() {
    let mut processes = Processes::default();
    let (parent, child) = (FIRST, FIRST + 1);
    processes.mmap(parent, 10, &mapping(0x1000, "/parent"));
    processes.exec(child, 200);
    processes.mmap(child, 150, &mapping(0x2000, "/library of the child"));
    processes.forked(parent, child, 100);
    let mut of = |address, time| at(&mut processes, child, address, time);
    assert_eq!((of(0x1000, 160), of(0x2000, 160)), ("/parent".into(), "/library of the child".into()));
    assert_eq!((of(0x2000, 250), of(0x3000, 250)), ("/library of the child".into(), "ProcessGone".into()));
}

#[test]
fn a_reused_process_id_is_another_process() {
    let mut processes = Processes::default();
    processes.mmap(FIRST, 10, &mapping(0x1000, "/a"));
    processes.exited(FIRST, 20);
    processes.mmap(FIRST + 1, 1, &mapping(0x1000, "/parent"));
    processes.forked(FIRST + 1, FIRST, 30);
    assert_eq!(at(&mut processes, FIRST, 0x1000, 15), "/a");
    assert_eq!(at(&mut processes, FIRST, 0x1000, 35), "/parent");
    assert!(!processes.has_exited(FIRST));
}

#[test]
fn an_exit_record_of_a_process_that_goes_on_is_revoked() {
    let mut processes = Processes::default();
    processes.mmap(FIRST, 10, &mapping(0x1000, "/a"));
    // Another thread of the process calls exec.
    processes.exited(FIRST, 20);
    processes.exec(FIRST, 30);
    assert!(!processes.has_exited(FIRST));
    // The main thread exits, and other threads continue.
    processes.exited(FIRST, 40);
    processes.mmap(FIRST, 35, &mapping(0x2000, "/told late"));
    assert!(processes.has_exited(FIRST));
    processes.mmap(FIRST, 50, &mapping(0x3000, "/b"));
    assert!(!processes.has_exited(FIRST));
    assert_eq!(
        (at(&mut processes, FIRST, 0x3000, 60).as_str(), at(&mut processes, FIRST, 0x1000, 15).as_str()),
        ("/b", "/a")
    );
}

/// A program whose main thread exits at once.
const LEADERLESS: &str = r#"
#include <pthread.h>
#include <stdio.h>
__attribute__((noinline)) int innermost(int x) { return x + 1; }
static void *goes_on(void *main_thread) {
    pthread_join(*(pthread_t *)main_thread, 0);
    printf("innermost %p\n.\n", (void *)innermost);
    fflush(stdout);
    _Exit(getchar() == EOF ? 0 : innermost(1));
}
int main(void) {
    static pthread_t main_thread, other;
    main_thread = pthread_self();
    pthread_create(&other, 0, goes_on, &main_thread);
    pthread_exit(0);
}
"#;

#[test]
fn names_of_a_process_whose_main_thread_has_exited_are_found() {
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", LEADERLESS, &["-pthread"]);
    let running = Running::start(Command::new(&program));
    assert_eq!(std::fs::read(format!("/proc/{}/maps", running.pid())).unwrap_or_default(), b"");
    // The file has to be found through the process, because its path no longer exists.
    std::fs::remove_file(&program).unwrap();
    let mut symbolizer = symbolizer();
    assert_eq!(names(&mut symbolizer, &running, &["innermost"]), ["innermost+0x4 (p (deleted))"]);
    // The same after the exit of the process was reported.
    let mut symbolizer = crate::harness::running::symbolizer();
    symbolizer.processes().mmap(running.pid(), 1, &mapping(0x1000, "/a"));
    symbolizer.processes().exited(running.pid(), 5);
    assert_eq!(names(&mut symbolizer, &running, &["innermost"]), ["innermost+0x4 (p (deleted))"]);
}

#[test]
fn names_of_an_exited_process_are_found() {
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", PROGRAM, &[]);
    let mut running = Running::start(Command::new(&program));
    let mut symbolizer = symbolizer();
    let text = std::fs::read(format!("/proc/{}/maps", running.pid())).unwrap();
    perf_prof_symbols::symbol::maps::parse(&text).for_each(|mapping| symbolizer.mmap(running.pid(), 5, &mapping));
    symbolizer.processes().exited(running.pid(), 9);
    running.end();
    std::fs::remove_file(&program).unwrap();
    let found = symbolizer.user(running.pid(), running.functions["local_one"] + 4, 7, AddressKind::Instruction);
    assert_eq!(shown(&found), "local_one+0x4 (p)");
}

#[test]
fn a_cached_result_ends_with_its_mapping() {
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", PROGRAM, &[]);
    let other = compile(folder.path(), "q", &PROGRAM.replace("innermost", "another"), &[]);
    let map =
        |path: &Path| Mapping { inode: 0, device: (0, 0), end: 0x10_0000, ..mapping(0x1000, path.to_str().unwrap()) };
    let offset = perf_prof_symbols::symbol::elf::function(&program, "innermost").unwrap().file_offset;
    let mut symbolizer = symbolizer();
    symbolizer.mmap(FIRST, 10, &map(&program));
    let name = |symbolizer: &mut Symbolizer, time| {
        shown(&symbolizer.user(FIRST, 0x1000 + offset, time, AddressKind::Instruction))
    };
    assert_eq!(name(&mut symbolizer, 15), "innermost+0x0 (p)");
    symbolizer.mmap(FIRST, 20, &map(&other));
    assert_eq!(
        (name(&mut symbolizer, 15), name(&mut symbolizer, 25)),
        ("innermost+0x0 (p)".into(), "another+0x0 (q)".into())
    );
    assert_eq!(
        (name(&mut symbolizer, 15), name(&mut symbolizer, 25)),
        ("innermost+0x0 (p)".into(), "another+0x0 (q)".into())
    );
    symbolizer.processes().exec(FIRST, 30);
    symbolizer.mmap(FIRST, 40, &map(&program));
    assert_eq!(name(&mut symbolizer, 45), "innermost+0x0 (p)");
}

#[test]
fn exited_processes_are_forgotten_beyond_a_bound() {
    let mut symbolizer = symbolizer();
    let files: Vec<String> = (0..40).map(|file| format!("/lib/no such file {file}")).collect();
    for number in 0..20_000 {
        let pid = FIRST + number;
        symbolizer.processes().exec(pid, 1);
        for (at, path) in files.iter().enumerate() {
            symbolizer.mmap(pid, 2, &mapping(0x1000 * at as u64, path));
        }
        symbolizer.processes().exited(pid, 3);
        assert!(symbolizer.processes().len() <= 4200, "{number}");
    }
    let last = FIRST + 19_999;
    assert_eq!(at(symbolizer.processes(), last, 0x1000, 2), "/lib/no such file 1");
    assert_eq!(at(symbolizer.processes(), FIRST, 0x1000, 2), "ProcessGone");
}

#[test]
fn many_short_lived_processes_share_what_is_read() {
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", PROGRAM, &["-static"]);
    let cache_bytes = 32 << 20;
    let mut symbolizer = Symbolizer::new(Options { cache_bytes, ..Options::default() });
    let mut most = 0;
    for _ in 0..100 {
        let mut running = Running::start(Command::new(&program));
        let text = std::fs::read(format!("/proc/{}/maps", running.pid())).unwrap();
        perf_prof_symbols::symbol::maps::parse(&text).for_each(|mapping| symbolizer.mmap(running.pid(), 5, &mapping));
        running.end();
        symbolizer.processes().exited(running.pid(), 9);
        let found = resolve(&mut symbolizer, running.pid(), running.functions["local_one"]);
        assert_eq!(shown(&found), "local_one+0x0 (p)");
        most = most.max(symbolizer.bytes());
    }
    let one = std::fs::metadata(&program).unwrap().len() as usize;
    assert!(most < one, "{most} bytes for a program of {one}");
}

/// Returns the mapping of a file's code. The address of each byte is `at` plus its offset in the file.
fn code(path: &Path, at: u64) -> Option<Mapping> {
    let elf = Elf::open(path).ok()?;
    let text = elf.section(".text")?;
    let offset = elf.offset_of(text.address)?;
    let (start, end) = (at + offset / 4096 * 4096, at + (offset + text.size).next_multiple_of(4096));
    let path = path.to_str()?;
    Some(Mapping { inode: 0, device: (0, 0), end, file_offset: start - at, ..mapping(start, path) })
}

#[test]
fn a_thousand_short_lived_processes_stay_within_a_small_cache() {
    let text = std::fs::read("/proc/self/maps").unwrap();
    let libc = perf_prof_symbols::symbol::maps::parse(&text)
        .find(|mapping| mapping.path.to_string_lossy().contains("/libc.so"));
    let Some(libc) = libc else { skip(Need::Vdso, "not linked with a shared libc") };
    let files = std::fs::read_dir(libc.path.parent().unwrap()).unwrap().flatten().map(|entry| entry.path());
    let files = files.filter(|path| path.to_string_lossy().contains(".so") && path.is_file());
    let codes: Vec<Mapping> =
        files.enumerate().filter_map(|(number, path)| code(&path, (number as u64 + 1) << 32)).take(200).collect();
    let names = |cache_bytes: usize| {
        let mut symbolizer = Symbolizer::new(Options { cache_bytes, ..Options::default() });
        let (mut most, mut named) = (0, 0);
        for number in 0..1000 {
            let pid = FIRST + number as u32;
            let own: Vec<&Mapping> = (0..5).map(|file| &codes[(number * 3 + file * 7) % codes.len()]).collect();
            symbolizer.processes().exec(pid, 1);
            own.iter().for_each(|mapping| symbolizer.mmap(pid, 2, mapping));
            symbolizer.processes().exited(pid, 4);
            for mapping in own {
                let middle = mapping.start + (mapping.end - mapping.start) / 2;
                let found = symbolizer.user(pid, middle, 3, AddressKind::Instruction);
                named += usize::from(found.symbol.is_ok());
                most = most.max(symbolizer.bytes());
            }
        }
        (most, named)
    };
    let (large, small) = (Options::default().cache_bytes, 2 << 20);
    let (all, named) = names(large);
    let (most, named_in_small) = names(small);
    assert!(most <= small, "{most} bytes");
    // A few files are too large for the cache. All other files are read repeatedly.
    assert!(named_in_small > named / 2, "{named_in_small} of {named}");
    if all <= small {
        println!("not tested: all libraries here take {all} bytes");
    }
}

#[test]
fn a_cache_that_is_too_small_is_not_exceeded_but_reported() {
    let own = std::process::id();
    let mut symbolizer = Symbolizer::new(Options { cache_bytes: 8 << 10, ..Options::default() });
    let text = std::fs::read("/proc/self/maps").unwrap();
    let code: Vec<Mapping> =
        perf_prof_symbols::symbol::maps::parse(&text).filter(|mapping| mapping.executable).collect();
    let mut too_large = 0;
    for mapping in &code {
        let found = resolve(&mut symbolizer, own, mapping.start + 0x800);
        too_large += usize::from(matches!(found.symbol, Err(Reason::TooLarge { .. })));
        assert!(symbolizer.bytes() <= (8 << 10) + 128 * 1024, "{}", symbolizer.bytes());
    }
    assert!(too_large > 0, "{code:?}");
}
