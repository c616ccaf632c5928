//! Code that a process generates at run time: perf maps and jitdump files of running processes.

use std::{fs, process::Command};

use perf_prof_symbols::symbol::{AddressKind, Mapping, Options, Reason, Symbolizer};
use tempfile::tempdir;

use crate::harness::{
    compile::compile,
    machine::{Need, needs},
    running::{Running, resolve, shown, symbolizer},
};

/// A program that maps memory for code and prints its address.
const JIT: &str = r#"
#include <stdio.h>
#include <sys/mman.h>
int main(void) {
    void *code = mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("code %p\n.\n", code);
    fflush(stdout);
    return getchar() == EOF ? 0 : 1;
}
"#;

#[test]
fn a_perf_map_that_grows() {
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", JIT, &[]);
    let mut running = Running::start(Command::new(&program));
    let (pid, code) = (running.pid(), running.functions["code"]);
    let map = format!("/tmp/perf-{pid}.map");
    let mut symbolizer = symbolizer();
    let at = |symbolizer: &mut Symbolizer, address| shown(&resolve(symbolizer, pid, address));
    assert_eq!(at(&mut symbolizer, code), format!("{} (//anon)", Reason::NoPerfMap { pid }));
    fs::write(&map, format!("{code:x} 40 py::first:/a.py\n")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_eq!(at(&mut symbolizer, code + 0x3f), "py::first:/a.py+0x3f (//anon)");
    fs::write(&map, format!("{code:x} 40 py::first:/a.py\n{:x} 40 py::second:/a.py\n", code + 0x40)).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_eq!(at(&mut symbolizer, code + 0x40), "py::second:/a.py+0x0 (//anon)");
    assert_eq!(at(&mut symbolizer, code + 0x1000), format!("{} (//anon)", Reason::NotInPerfMap { pid }));
    // `code + 0x40` as the return address of a frame belongs to the function before it.
    let found = symbolizer.user(pid, code + 0x40, u64::MAX - 1, AddressKind::Return);
    assert_eq!(shown(&found), "py::first:/a.py+0x40 (//anon)");
    symbolizer.processes().exited(pid, 1);
    running.end();
    fs::remove_file(&map).unwrap();
    assert_eq!(at(&mut symbolizer, code + 0x41), "py::second:/a.py+0x1 (//anon)");
}

#[test]
fn a_perf_map_that_is_replaced_by_another_file() {
    let folder = tempdir().unwrap();
    let program = compile(folder.path(), "p", JIT, &[]);
    let running = Running::start(Command::new(&program));
    let (pid, code) = (running.pid(), running.functions["code"]);
    let map = format!("/tmp/perf-{pid}.map");
    let mut symbolizer = symbolizer();
    fs::write(&map, format!("{code:x} 40 old\n")).unwrap();
    assert_eq!(shown(&resolve(&mut symbolizer, pid, code)), "old+0x0 (//anon)");
    fs::write(format!("{map}.new"), format!("{code:x} 40 new\n{:x} 40 more\n", code + 0x40)).unwrap();
    fs::rename(format!("{map}.new"), &map).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(30));
    let found = [code + 0x40, code].map(|address| shown(&resolve(&mut symbolizer, pid, address)));
    fs::remove_file(&map).unwrap();
    assert_eq!(found, ["more+0x0 (//anon)", "new+0x0 (//anon)"]);
}

#[test]
fn a_perf_map_in_the_process_own_mount_and_pid_namespace() {
    let folder = tempdir().unwrap();
    needs([Need::Namespaces]);
    // In its own namespace, the process has the id 1 and writes /tmp/perf-1.map.
    let source = JIT.replace("int main(void) {", "int main(void) { FILE *map = fopen(\"/tmp/perf-1.map\", \"w\");")
        .replace("return getchar", "fprintf(map, \"%lx 40 in_a_container\\n\", (long)code); fclose(map); printf(\".\\n\"); fflush(stdout); return getchar")
        .replace("\\n.\\n\"", "\\n\"");
    let program = compile(folder.path(), "c", &source, &["-static"]);
    let copy = format!("/dev/shm/perf-prof-test-container-{}", std::process::id());
    let script = format!("cp {} {copy} && mount -t tmpfs none /tmp && exec {copy}", program.display());
    let mut command = Command::new("unshare");
    command.args(["-mpf", "--kill-child", "sh", "-c", &script]);
    let running = Running::start(command);
    // unshare has forked, so the program is its child.
    let children = format!("/proc/{0}/task/{0}/children", running.pid());
    let pid: u32 = fs::read_to_string(children).unwrap().trim().parse().unwrap();
    let found = resolve(&mut symbolizer(), pid, running.functions["code"] + 5);
    fs::remove_file(copy).unwrap();
    assert_eq!(shown(&found), "in_a_container+0x5 (//anon)");
}

#[test]
fn a_jitdump_is_found_by_its_mapping() {
    let folder = tempdir().unwrap();
    let dump = folder.path().join("jit-77.dump");
    let mut bytes = Vec::new();
    [0x4a69_5444u32, 1, 40, 62, 0, 77].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.extend([0; 16]);
    let name = b"Function:compiled\0\x90\x90\x90\x90";
    [0u32, 56 + name.len() as u32].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.extend([0; 8]);
    [77u32, 77].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    [0x6000_0000u64, 0x6000_0000, 0x40, 1].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.extend(name);
    fs::write(&dump, bytes).unwrap();
    let map = |start, path| Mapping {
        start,
        end: start + 0x1000,
        file_offset: 0,
        device: (0, 0),
        inode: 0,
        generation: 0,
        path,
        deleted: false,
        executable: true,
        build_id: None,
    };
    let pid = 0x7fff_1000;
    let mut symbolizer = Symbolizer::new(Options::default());
    symbolizer.mmap(pid, 1, &map(0x5000_0000, dump));
    symbolizer.mmap(pid, 2, &map(0x6000_0000, "//anon".into()));
    assert_eq!(shown(&resolve(&mut symbolizer, pid, 0x6000_0010)), "Function:compiled+0x10 (//anon)");
}
