//! Where the names of a file are: in the file, in a debug file, in compressed sections, in DWARF, or nowhere.

use std::{fs, path::Path, process::Command};

use perf_prof_symbols::symbol::{
    AddressKind, Demangle, Inline, Options, Reason, Srcline, Symbolizer,
    elf::{self, DebugSearch, Elf, FunctionError, Symbols},
};
use tempfile::tempdir;

use crate::harness::{
    compile::{compile, tool},
    machine::{Need, skip},
    running::{PROGRAM, Running, names, resolve, shown, symbolizer},
};

const BOTH: [&str; 2] = ["innermost", "local_one"];

/// Builds a program with these options, changes it, and checks the names of its two functions.
#[track_caller]
fn check<T>(options: &[&str], change: impl FnOnce(&Path) -> T, expected: [&str; 2]) {
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", PROGRAM, options);
    change(&program);
    let running = Running::start(Command::new(&program));
    assert_eq!(names(&mut symbolizer(), &running, &BOTH), expected);
}

const NAMED: [&str; 2] = ["innermost+0x4 (p)", "local_one+0x4 (p)"];

#[test]
fn programs_of_all_kinds() {
    for options in [
        &["-pie", "-fPIE"][..],
        &["-no-pie"],
        &["-static"],
        &["-static-pie", "-fPIE"],
        &["-O2", "-g"],
        &["-Wl,-z,separate-code"],
        &["-Wl,-z,noseparate-code"],
    ] {
        check(options, |_| (), NAMED);
    }
}

#[test]
fn a_program_without_symbols_gives_the_reason() {
    let reason = |path: &Path| format!("{} has no symbols, and no debug file was found for it (p)", path.display());
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", PROGRAM, &["-static", "-s"]);
    let running = Running::start(Command::new(&program));
    assert_eq!(names(&mut symbolizer(), &running, &BOTH), [reason(&program), reason(&program)]);
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Moves the debug information to `to`, and leaves a debug link to it.
fn split(program: &Path, to: &Path) {
    tool("objcopy", &["--only-keep-debug", text(program), text(to)]);
    tool("strip", &[text(program)]);
    tool("objcopy", &[&format!("--add-gnu-debuglink={}", text(to)), text(program)]);
}

#[test]
fn a_debug_link_leads_to_the_file_beside_or_below() {
    check(&["-g"], |program| split(program, &program.with_extension("debug")), NAMED);
    let below = |program: &Path| {
        let folder = program.with_file_name(".debug");
        fs::create_dir(&folder).unwrap();
        split(program, &folder.join("other name"))
    };
    check(&["-g", "-Wl,--build-id=none"], below, NAMED);
}

#[test]
fn a_debug_file_of_another_build_is_not_taken() {
    let change = |program: &Path| {
        let debug = program.with_extension("debug");
        split(program, &debug);
        let mut bytes = fs::read(&debug).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&debug, bytes).unwrap();
    };
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", PROGRAM, &["-g"]);
    change(&program);
    let running = Running::start(Command::new(&program));
    let found = names(&mut symbolizer(), &running, &BOTH);
    assert!(found.iter().all(|name| !name.starts_with("innermost") && !name.starts_with("local_one")), "{found:?}");
}

#[test]
fn a_build_id_leads_to_the_debug_file() {
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", PROGRAM, &["-g", "-Wl,--build-id=sha1"]);
    let id: String = Elf::open(&program).unwrap().build_id.unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    let debug = folder.path().join(".build-id").join(&id[..2]).join(format!("{}.debug", &id[2..]));
    fs::create_dir_all(debug.parent().unwrap()).unwrap();
    tool("objcopy", &["--only-keep-debug", text(&program), text(&debug)]);
    tool("strip", &[text(&program)]);
    let search = DebugSearch { root: "".into(), global: folder.path().to_owned() };
    let elf = Elf::open(&program).unwrap();
    let (path, found) = elf::debug_file(&elf, &program, &search).unwrap();
    assert_eq!(path, debug);
    let symbols = Symbols::read(&[&elf, &found], usize::MAX).unwrap();
    assert!(symbols.iter().any(|symbol| symbol.name == b"local_one"));
    // Another file at the path of the right one is not used.
    fs::copy("/proc/self/exe", &debug).unwrap();
    assert!(elf::debug_file(&elf, &program, &search).is_none());
}

#[test]
fn names_in_gnu_debugdata_are_used() {
    let pack = |program: &Path| {
        let mini = program.with_extension("mini");
        tool("objcopy", &["--only-keep-debug", text(program), text(&mini)]);
        tool("objcopy", &["-S", "--keep-symbol=local_one", "--keep-symbol=innermost", text(&mini)]);
        tool("strip", &[text(program)]);
        tool("xz", &[text(&mini)]);
        tool("objcopy", &["--add-section", &format!(".gnu_debugdata={}.xz", text(&mini)), text(program)])
    };
    check(&[], pack, NAMED);
}

#[test]
fn dwarf_names_what_has_no_symbol() {
    let no_symbols = |program: &Path| tool("objcopy", &["-w", "--strip-all", "--keep-section=.debug_*", text(program)]);
    check(&["-g"], no_symbols, NAMED);
    check(&["-O2", "-g"], no_symbols, NAMED);
}

#[test]
fn entries_of_the_linkage_table_have_names() {
    let folder = tempdir().unwrap();
    for options in [&["-Wl,-z,lazy"][..], &["-Wl,-z,now"], &["-fcf-protection=full", "-Wl,-z,ibtplt"]] {
        let program = compile(folder.path(), "p", PROGRAM, options);
        let elf = Elf::open(&program).unwrap();
        let symbols = Symbols::read(&[&elf], usize::MAX).unwrap();
        let found: Vec<_> = symbols.iter().filter(|symbol| symbol.name == b"printf@plt").collect();
        assert_eq!(found.len(), 1, "{options:?}");
    }
}

const INLINED: &str = r#"
#include <stdio.h>
volatile int sink;
static inline __attribute__((always_inline)) void deepest(int x) {
    sink = x;
    __asm__ volatile(".globl here\nhere: nop;nop");
}
static inline __attribute__((always_inline)) void middle(int x) {
    deepest(x + 1);
}
__attribute__((noinline)) void outermost(int x) {
    middle(x * 2);
}
extern char here[];
int main(void) {
    printf("here %p\n.\n", (void *)here);
    fflush(stdout);
    outermost(getchar());
    return 0;
}
"#;

#[test]
fn inlined_functions_and_lines() {
    let folder = tempdir().unwrap();
    for options in [&["-O2", "-g"][..], &["-O2", "-gdwarf-4"], &["-O2", "-g", "-gz=zlib"]] {
        let program = compile(folder.path(), "p", INLINED, options);
        let running = Running::start(Command::new(&program));
        let with = |inline, srcline| {
            let mut symbolizer = Symbolizer::new(Options { inline, srcline, ..Options::default() });
            let found = resolve(&mut symbolizer, running.pid(), running.functions["here"]);
            let inlined = found.inlined.iter().map(|frame| format!("{} p.c:{}", frame.name, frame.line));
            let line = found.srcline.as_ref().map(|(file, line)| {
                assert!(file.ends_with("p.c"), "{file}");
                *line
            });
            (inlined.collect::<Vec<_>>(), line)
        };
        assert_eq!(
            with(Inline::Yes, Srcline::Yes),
            (vec!["deepest p.c:6".to_owned(), "middle p.c:9".to_owned()], Some(12))
        );
        assert_eq!(with(Inline::No, Srcline::Yes), (vec![], Some(6)));
        assert_eq!(with(Inline::No, Srcline::No), (vec![], None));
        let line = symbolizer()
            .srcline(running.pid(), running.functions["here"], u64::MAX - 1, AddressKind::Instruction)
            .unwrap();
        assert_eq!(line.1, 6);
    }
}

#[test]
fn names_of_cpp_as_in_the_source_or_as_the_linker_has_them() {
    let folder = tempdir().unwrap();
    let source = folder.path().join("p.cc");
    let text_of = r#"
#include <cstdio>
namespace shop { template <typename T> struct Shelf { __attribute__((noinline)) int take(T x) { __asm__ volatile("nop;nop;nop;nop"); return x + 1; } }; }
int main() {
    int (shop::Shelf<long>::*take)(long) = &shop::Shelf<long>::take;
    printf("take %p\n.\n", *(void **)&take);
    fflush(stdout);
    getchar();
}
"#;
    fs::write(&source, text_of).unwrap();
    let program = folder.path().join("p");
    tool("g++", &[text(&source), "-o", text(&program)]);
    let running = Running::start(Command::new(&program));
    assert_eq!(names(&mut symbolizer(), &running, &["take"]), ["shop::Shelf<long>::take(long)+0x4 (p)"]);
    let mut mangled = Symbolizer::new(Options { demangle: Demangle::No, ..Options::default() });
    assert_eq!(names(&mut mangled, &running, &["take"]), ["_ZN4shop5ShelfIlE4takeEl+0x4 (p)"]);
}

#[test]
fn of_several_names_the_one_that_perf_shows_is_used() {
    let source = r#"
#include <stdio.h>
__attribute__((noinline)) int __hidden_name(int x) { __asm__ volatile("nop;nop;nop;nop"); return x; }
extern __typeof(__hidden_name) shown_name __attribute__((alias("__hidden_name")));
extern __typeof(__hidden_name) shown_name_weak_and_long __attribute__((weak, alias("__hidden_name")));
int main(void) { printf("f %p\n.\n", (void *)__hidden_name); fflush(stdout); return getchar() == EOF ? 0 : shown_name(1); }
"#;
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", source, &[]);
    let running = Running::start(Command::new(&program));
    assert_eq!(names(&mut symbolizer(), &running, &["f"]), ["shown_name+0x4 (p)"]);
}

#[test]
fn a_return_address_at_a_functions_end_is_that_functions() {
    let source = r#"
#include <stdio.h>
#include <stdlib.h>
__asm__(".globl first\n.type first,@function\nfirst: nop\nnop\n.size first, .-first\n.globl second\n.type second,@function\nsecond: nop\nnop\n.size second, .-second\n");
extern char first[], second[];
int main(void) { printf("first %p\nsecond %p\n.\n", (void *)first, (void *)second); fflush(stdout); return getchar() == EOF ? 0 : 1; }
"#;
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", source, &[]);
    let running = Running::start(Command::new(&program));
    let mut symbolizer = symbolizer();
    let mut at = |place| shown(&symbolizer.user(running.pid(), running.functions["second"], 5, place));
    assert_eq!(
        (at(AddressKind::Instruction), at(AddressKind::Return)),
        ("second+0x0 (p)".into(), "first+0x2 (p)".into())
    );
    // The second lookup uses the cache.
    assert_eq!(
        (at(AddressKind::Instruction), at(AddressKind::Return)),
        ("second+0x0 (p)".into(), "first+0x2 (p)".into())
    );
}

#[test]
fn functions_for_probes_are_found() {
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", PROGRAM, &["-g"]);
    let elf = Elf::open(&program).unwrap();
    let found = elf::function(&program, "local_one").unwrap();
    let symbols = Symbols::read(&[&elf], usize::MAX).unwrap();
    let symbol = symbols.iter().find(|symbol| symbol.name == b"local_one").unwrap();
    assert_eq!(elf.address_of(found.file_offset), Some(symbol.start));
    // The result stays the same after the names were moved to a debug file, whose offsets differ.
    split(&program, &program.with_extension("debug"));
    assert_eq!(elf::function(&program, "local_one").unwrap(), found);
    let error = elf::function(&program, "locl_one").unwrap_err();
    assert!(matches!(&error, FunctionError::Unknown { near, .. } if near == &["local_one"]), "{error}");
    tool("gcc", &["-static", "-s", text(&program.with_extension("c")), "-o", text(&program)]);
    assert!(matches!(elf::function(&program, "main"), Err(FunctionError::NoSymbols { .. })));
}

/// The C library only contains the names to which other files link.
#[test]
fn a_function_of_the_c_library_is_found_for_a_probe() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let Some(libc) = paths.find(|path| path.contains("/libc.so")) else {
        skip(Need::Vdso, "this process has no libc.so");
    };
    let found = elf::function(Path::new(libc), "malloc").unwrap();
    assert!(found.file_offset > 0x1000 && found.size > 0, "{found:?}");
    let said = elf::function(Path::new(libc), "mallocc").unwrap_err().to_string();
    assert!(said.contains("did you mean") && said.contains("malloc"), "{said}");
    for no_elf in ["/proc/self/maps", "/no/such"] {
        assert!(matches!(elf::function(Path::new(no_elf), "x"), Err(FunctionError::File { .. })), "{no_elf}");
    }
}

#[test]
fn debug_information_that_almost_fills_the_cache_is_not_read_for_each_address() {
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", PROGRAM, &["-g3"]);
    let running = Running::start(Command::new(&program));
    let at = running.functions["innermost"] + 4;
    let elf = Elf::open(&program).unwrap();
    let debug = elf.sections.iter().filter(|section| section.name.starts_with(".debug_"));
    let sections: u64 = debug.map(|section| section.uncompressed_size()).sum();
    // The headers stay in the cache too.
    let headers = elf.bytes() as u64 + (4 << 10);
    // Half of the cache is for binaries.
    let cache = |bytes: u64| Symbolizer::new(Options { cache_bytes: 2 * bytes as usize, ..Options::default() });
    let mut small = cache(sections * 5 / 4);
    let line =
        |symbolizer: &mut Symbolizer| symbolizer.srcline(running.pid(), at, u64::MAX - 1, AddressKind::Instruction);
    assert!(matches!(line(&mut small), Err(Reason::TooLarge { .. })), "{sections}");
    let mut fits = cache(sections * 7 / 4 + headers);
    assert!(line(&mut fits).is_ok());
    // The DWARF stays in the cache.
    assert!(fits.bytes() as u64 > sections);
    assert!(line(&mut fits).is_ok() && fits.bytes() as u64 <= sections * 7 / 4 + headers);
}
