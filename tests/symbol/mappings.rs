//! Mapped files that were removed, replaced or moved to huge pages, that are mapped several times, or that are in
//! another namespace.

use std::{fs, path::Path, process::Command};

use perf_prof_symbols::symbol::{
    AddressKind, Mapping, Reason,
    elf::{self, Elf},
    maps,
};
use tempfile::tempdir;

use crate::harness::{
    compile::{compile, tool},
    machine::{Need, needs, skip},
    running::{PROGRAM, Running, names, resolve, shown, symbolizer},
};

const NAMED: [&str; 2] = ["innermost+0x4 (p)", "local_one+0x4 (p)"];
/// The names of [`BOTH`] in a removed file, which the kernel shows with a suffix.
const NAMED_GONE: [&str; 2] = ["innermost+0x4 (p (deleted))", "local_one+0x4 (p (deleted))"];
const BOTH: [&str; 2] = ["innermost", "local_one"];

#[test]
fn a_file_that_was_removed_while_it_runs() {
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", PROGRAM, &[]);
    let running = Running::start(Command::new(&program));
    fs::remove_file(&program).unwrap();
    assert_eq!(names(&mut symbolizer(), &running, &BOTH), NAMED_GONE);
}

/// Returns a program with other names and addresses of functions than `PROGRAM`.
fn other(folder: &Path) -> std::path::PathBuf {
    let source = PROGRAM
        .replace("innermost", "something_else")
        .replace("int main", "int filler(int x) { return x * x * x; } int main");
    compile(folder, "q", &source, &[])
}

#[test]
fn a_file_that_was_replaced_while_it_runs() {
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", PROGRAM, &[]);
    let running = Running::start(Command::new(&program));
    fs::rename(other(folder.path()), &program).unwrap();
    assert_eq!(names(&mut symbolizer(), &running, &BOTH), NAMED_GONE);
}

#[test]
fn a_file_that_was_replaced_after_its_process_exited_gives_no_wrong_names() {
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", PROGRAM, &[]);
    let mut running = Running::start(Command::new(&program));
    let mut symbolizer = symbolizer();
    // The mappings of the process are known, but its file was never opened.
    symbolizer.processes().read(running.pid());
    symbolizer.processes().exited(running.pid(), 1);
    running.end();
    let keep = folder.path().join("keep its inode from being used again");
    fs::hard_link(&program, keep).unwrap();
    fs::rename(other(folder.path()), &program).unwrap();
    let found = resolve(&mut symbolizer, running.pid(), running.functions["innermost"]);
    assert_eq!(found.symbol, Err(Reason::Replaced { path: program.display().to_string() }));
    fs::remove_file(&program).unwrap();
}

/// Returns the mapping of a file's code, as a side-band record contains it.
fn mapping(program: &Path, start: u64, build_id: Option<&[u8]>) -> Mapping {
    let elf = Elf::open(program).unwrap();
    let segment = elf.segments.iter().find(|segment| segment.address != 0 && segment.offset != 0).unwrap();
    Mapping {
        start,
        end: start + (8 << 20),
        file_offset: segment.offset & !0xfff,
        device: (0, 0),
        inode: 0,
        generation: 0,
        path: program.into(),
        deleted: false,
        executable: true,
        build_id: build_id.map(Into::into),
    }
}

/// The id of a process that does not exist.
const NOBODY: u32 = 0x7fff_fff0;

#[test]
fn a_different_build_id_shows_that_the_file_was_replaced() {
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", PROGRAM, &["-Wl,--build-id=sha1"]);
    let id = Elf::open(&program).unwrap().build_id.unwrap();
    let innermost = elf::function(&program, "innermost").unwrap().file_offset;
    let right = mapping(&program, 0x5000_0000, Some(&id));
    let at = right.start + innermost - right.file_offset;
    let wrong = mapping(&program, 0x5000_0000, Some(&[7; 20]));
    let mut symbolizer = symbolizer();
    symbolizer.mmap(NOBODY, 5, &wrong);
    assert_eq!(
        resolve(&mut symbolizer, NOBODY, at).symbol,
        Err(Reason::Replaced { path: program.display().to_string() })
    );
    symbolizer.mmap(NOBODY, 6, &right);
    assert_eq!(shown(&resolve(&mut symbolizer, NOBODY, at)), "innermost+0x0 (p)");
    assert_eq!(resolve(&mut symbolizer, NOBODY, at).build_id.as_deref(), Some(&*id));
    // The previous mapping is still known for earlier times.
    assert!(symbolizer.user(NOBODY, at, 5, AddressKind::Instruction).symbol.is_err());
}

#[test]
fn code_that_was_moved_to_huge_pages_has_the_names_of_its_file() {
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", PROGRAM, &[]);
    let innermost = elf::function(&program, "innermost").unwrap().file_offset;
    let file = mapping(&program, 0x4000_0000, None);
    let at = file.start + innermost - file.file_offset;
    let anonymous = |start, end| Mapping { start, end, path: "//anon".into(), file_offset: start, ..file.clone() };
    let mut symbolizer = symbolizer();
    symbolizer.mmap(NOBODY, 1, &file);
    symbolizer.mmap(NOBODY, 2, &anonymous(0x4000_0000, 0x4020_0000));
    assert_eq!(shown(&resolve(&mut symbolizer, NOBODY, at)), "innermost+0x0 (p)");
    // A mapping over the file that is smaller than a huge page contains other code.
    symbolizer.mmap(NOBODY, 3, &anonymous(0x4000_0000, 0x4000_2000));
    assert_eq!(resolve(&mut symbolizer, NOBODY, at).symbol, Err(Reason::NoPerfMap { pid: NOBODY }));
}

#[test]
fn a_program_in_a_mount_namespace_of_its_own() {
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", PROGRAM, &[]);
    let inside = folder.path().join("inside");
    fs::create_dir(&inside).unwrap();
    // Outside of the namespace, another program is at this path.
    let decoy = other(folder.path());
    fs::rename(decoy, inside.join("p")).unwrap();
    let script = format!("mount -t tmpfs none {0} && cp {1} {0}/p && exec {0}/p", inside.display(), program.display());
    needs([Need::Namespaces]);
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]);
    let mut running = Running::start(command);
    let mut symbolizer = symbolizer();
    assert_eq!(names(&mut symbolizer, &running, &BOTH), NAMED);
    // The namespace ends with the process, but perf-prof still has the file open.
    symbolizer.processes().exited(running.pid(), 5);
    running.end();
    let main = resolve(&mut symbolizer, running.pid(), running.functions["main"] + 1);
    assert_eq!(shown(&main), "main+0x1 (p)");
}

#[test]
fn a_library_that_was_loaded_later_and_twice_in_memory() {
    let folder = tempdir().unwrap();
    let library =
        "__attribute__((noinline)) int in_library(int x) { __asm__ volatile(\"nop;nop;nop;nop\"); return x; }";
    let library = compile(folder.path(), "l.so", library, &["-shared", "-fPIC"]);
    let copy = folder.path().join("copy.so");
    fs::copy(&library, &copy).unwrap();
    let source = format!(
        r#"
#include <stdio.h>
#include <dlfcn.h>
int main(void) {{
    void *one = dlopen("{}", RTLD_NOW), *two = dlopen("{}", RTLD_NOW);
    printf("one %p\ntwo %p\n.\n", dlsym(one, "in_library"), dlsym(two, "in_library"));
    fflush(stdout);
    return getchar() == EOF ? 0 : 1;
}}"#,
        library.display(),
        copy.display()
    );
    let program = compile(folder.path(), "p", &source, &["-ldl"]);
    let running = Running::start(Command::new(&program));
    let expected = ["in_library+0x4 (l.so)", "in_library+0x4 (copy.so)"];
    assert_eq!(names(&mut symbolizer(), &running, &["one", "two"]), expected);
}

#[test]
fn the_vdso_of_a_32_bit_process_is_not_named_as_ours() {
    let text = fs::read("/proc/self/maps").unwrap();
    let vdso = maps::parse(&text).find(|mapping| mapping.path == Path::new("[vdso]"));
    let Some(vdso) = vdso else { skip(Need::Vdso, "there is none") };
    let size = vdso.end - vdso.start;
    let mut symbolizer = symbolizer();
    let mut named = |pid, start: u64, size| {
        symbolizer.mmap(pid, 1, &Mapping { start, end: start + size, ..vdso.clone() });
        let found: Vec<_> = (start..start + size).step_by(16).map(|at| resolve(&mut symbolizer, pid, at)).collect();
        let other = found.iter().filter(|found| found.symbol == Err(Reason::OtherVdso)).count();
        (found.iter().any(|found| found.symbol.is_ok()), other == found.len())
    };
    assert_eq!(named(NOBODY, vdso.start, size), (true, false));
    assert_eq!(named(NOBODY - 1, 0xf7fc_4000, size), (false, true));
    assert_eq!(named(NOBODY - 2, vdso.start, size + 0x1000), (false, true));
}

#[test]
fn the_vdso_has_clock_gettime() {
    let text = fs::read("/proc/self/maps").unwrap();
    let vdso = maps::parse(&text).find(|mapping| mapping.path == Path::new("[vdso]"));
    let Some(vdso) = vdso else { skip(Need::Vdso, "there is none") };
    let mut symbolizer = symbolizer();
    let found = (vdso.start..vdso.end).step_by(16);
    let found = found.filter_map(|at| resolve(&mut symbolizer, std::process::id(), at).symbol.clone().ok());
    let names: std::collections::BTreeSet<_> = found.map(|found| found.name).collect();
    assert!(names.len() > 1 && names.iter().any(|name| name.contains("clock_gettime")), "{names:?}");
}

#[test]
fn mappings_without_functions_give_the_reason() {
    let mut symbolizer = symbolizer();
    let own = std::process::id();
    let text = fs::read("/proc/self/maps").unwrap();
    let special = |name: &str| maps::parse(&text).find(|mapping| mapping.path == Path::new(name));
    if let Some(vsyscall) = special("[vsyscall]") {
        let found = resolve(&mut symbolizer, own, vsyscall.start);
        assert_eq!(shown(&found), "[vsyscall] has no functions ([vsyscall])");
    }
    let nowhere = resolve(&mut symbolizer, own, 8);
    assert_eq!(shown(&nowhere), "the process has no mapping at this address ([unknown])");
    let nobody = resolve(&mut symbolizer, NOBODY, 8);
    assert_eq!(shown(&nobody), "the process has exited, and its mappings are not known ([unknown])");
    // The mapped file cannot be a binary.
    let folder = tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    tool("mkfifo", &[pipe.to_str().unwrap()]);
    let mapping = Mapping { path: pipe.clone(), ..maps::parse(&text).find(|mapping| mapping.executable).unwrap() };
    symbolizer.mmap(NOBODY, 1, &mapping);
    let found = resolve(&mut symbolizer, NOBODY, mapping.start);
    let error = "not a regular file".to_owned();
    assert_eq!(found.symbol, Err(Reason::Unreadable { path: pipe.display().to_string(), error }));
}
