//! Writes records of everything that already exists when a recording starts: the kernel, its modules, tasks, mappings,
//! namespaces and cgroups.

use std::{fs, path::Path};

use perf_prof_capture::MappingScope;
use perf_prof_recordings::write::{
    Dso, DsoOwner, Dsos, KernelCode, MappedFile, MappedRange as Range, Synthesis, TaskIds,
};
use perf_prof_symbols::symbol::{loaded_modules, maps, module_name};
use perf_prof_system::{cgroup, procfs};

use super::build_ids::{self, MappedFileBuildIds as BuildIds};

/// Writes the mappings of the kernel and its modules, with their build ids, and the symbols of BPF programs.
pub fn kernel(out: &mut Synthesis, dsos: &mut Dsos) {
    let build_id = build_ids::of_kernel();
    let list = fs::read("/proc/kallsyms").unwrap_or_default();
    // If the kernel hides its addresses, all addresses are 0, and there is no mapping to write.
    if let Some((name, start, end)) = kernel_text(&list) {
        out.kernel(&KernelCode {
            name: format!("[kernel.kallsyms]{name}").as_bytes(),
            start,
            len: end - start,
            reference: start,
            build_id: build_id.as_deref(),
        });
    }
    dsos.insert(b"[kernel.kallsyms]".as_slice().into(), Dso { build_id, of: DsoOwner::Kernel });
    for (name, start, len) in bpf_programs(&list) {
        out.ksymbol(name, start, len);
    }
    let paths = module_paths();
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    for (name, len, start) in loaded_modules(&modules) {
        let in_brackets = format!("[{name}]");
        let found = paths.iter().find(|path| module_name(path).as_deref() == Some(&in_brackets));
        let path = found.cloned().unwrap_or(in_brackets);
        let build_id = build_ids::of_module(name);
        let (name, build_id_bytes) = (path.as_bytes(), build_id.as_deref());
        out.kernel(&KernelCode { name, start, len, reference: 0, build_id: build_id_bytes });
        dsos.insert(path.into_bytes().into(), Dso { build_id, of: DsoOwner::Kernel });
    }
}

/// Parses a line of /proc/kallsyms. Returns the address and the text after the type, or `None` if the address is 0.
fn symbol(line: &[u8]) -> Option<(u64, &[u8])> {
    let address = u64::from_str_radix(std::str::from_utf8(line.get(..16)?).ok()?, 16).ok()?;
    Some((address, line.get(19..)?)).filter(|&(address, _)| address != 0)
}

/// Returns the symbol that marks the start of the kernel's code (`_text`, otherwise `_stext`), its address, and the
/// address at which the code ends.
fn kernel_text(list: &[u8]) -> Option<(&'static str, u64, u64)> {
    let (mut text, mut stext) = (None, None);
    // The lines are not sorted by address, so all 200,000 lines have to be read.
    for line in list.split(|&byte| byte == b'\n') {
        match line.get(19..) {
            Some(b"_text") => text = symbol(line),
            Some(b"_stext") => stext = symbol(line),
            Some(b"_etext") => {
                let named = |name, found: Option<(u64, _)>| found.map(|(at, _)| (name, at));
                let (name, start) = named("_text", text).or(named("_stext", stext))?;
                return Some((name, start, symbol(line)?.0)).filter(|&(_, start, end)| start < end);
            }
            _ => {}
        }
    }
    None
}

/// Returns the name, address and size of each loaded BPF program. kallsyms contains no sizes, so a program is assumed
/// to end where the next program starts. The programs are at the end of the list (`s_next()` in kernel/kallsyms.c).
/// Only probes come after them.
fn bpf_programs(list: &[u8]) -> Vec<(&[u8], u64, u32)> {
    /// The maximum size of a program, in bytes. It is also the assumed size of the last program, which has no next
    /// program.
    const LONGEST: u64 = 64 << 10;
    let lines = list.rsplit(|&byte| byte == b'\n').skip_while(|line| line.is_empty());
    let mut programs: Vec<(u64, &[u8])> = lines
        .take_while(|line| line.ends_with(b"\t[bpf]") || line.ends_with(b"\t[__builtin__kprobes]"))
        .filter_map(symbol)
        .filter_map(|(address, name)| Some((address, name.strip_suffix(b"\t[bpf]")?)))
        .collect();
    programs.sort_unstable();
    let ends = programs.iter().skip(1).map(|&(address, _)| address).chain([u64::MAX]).collect::<Vec<_>>();
    let program = |(&(start, name), end): (&(u64, _), u64)| (name, start, (end - start).min(LONGEST) as u32);
    programs.iter().zip(ends).map(program).collect()
}

/// Returns the paths of all module files of this kernel.
fn module_paths() -> Vec<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let folder = format!("/lib/modules/{}", release.trim());
    let list = fs::read_to_string(format!("{folder}/modules.dep")).unwrap_or_default();
    list.lines().filter_map(|line| Some(format!("{folder}/{}", line.split_once(':')?.0))).collect()
}

/// Writes records of the processes `pids`: the creation and the comm of each thread, and the mappings of each process.
pub fn processes(out: &mut Synthesis, dsos: &mut Dsos, which: MappingScope, pids: &[u32]) {
    let mut build_ids = BuildIds::default();
    for &pid in pids {
        if !task(out, pid) {
            continue;
        }
        mappings(out, dsos, &mut build_ids, which, pid);
        for tid in procfs::tasks(pid).unwrap_or_default().into_iter().filter(|&tid| tid != pid) {
            let Some(name) = procfs::comm(tid) else { continue };
            out.fork(TaskIds { pid, tid }, TaskIds::first(pid));
            out.comm(TaskIds { pid, tid }, &name);
        }
    }
}

/// Writes the namespaces of processes and their threads.
pub fn namespaces(out: &mut Synthesis, pids: &[u32]) {
    for &pid in pids {
        for tid in procfs::tasks(pid).unwrap_or_default() {
            if let Some(namespaces) = procfs::namespaces(tid) {
                out.namespaces(TaskIds { pid, tid }, &namespaces);
            }
        }
    }
}

/// Writes all existing cgroups.
pub fn cgroups(out: &mut Synthesis) {
    cgroup::all().iter().for_each(|(id, path)| out.cgroup(*id, path.as_os_str().as_encoded_bytes()));
}

/// Writes the creation and the comm of a process. Returns whether the process exists.
pub fn task(out: &mut Synthesis, pid: u32) -> bool {
    // The process may exit at any moment. The records that were written before its exit are still correct.
    let Some(name) = procfs::comm(pid) else { return false };
    let parent = procfs::parent(pid).unwrap_or(0);
    out.fork(TaskIds::first(pid), TaskIds::first(parent));
    out.comm(TaskIds::first(pid), &name);
    true
}

fn mappings(out: &mut Synthesis, dsos: &mut Dsos, build_ids: &mut BuildIds, which: MappingScope, pid: u32) {
    let Ok(text) = fs::read(format!("/proc/{pid}/maps")) else { return };
    for line in text.split(|&byte| byte == b'\n') {
        let Some(mapping) = maps::parse(line).next() else { continue };
        let (prot, flags) = permissions(line);
        let is_data = which == MappingScope::All && prot & libc::PROT_READ as u32 != 0;
        if !mapping.executable && !is_data {
            continue;
        }
        let mut path = mapping.path.as_os_str().as_encoded_bytes().to_vec();
        let is_file = path.starts_with(b"/") && mapping.inode != 0;
        let build_id = if is_file { build_ids.find(pid, &mapping) } else { None };
        if path.is_empty() {
            path.extend(b"//anon");
        }
        if mapping.deleted {
            path.extend(b" (deleted)");
        }
        let file = match &build_id {
            Some(id) => MappedFile::BuildId(id),
            None => MappedFile::Inode(mapping.device, mapping.inode),
        };
        let (start, len, offset) = (mapping.start, mapping.end - mapping.start, mapping.file_offset);
        out.mmap2(TaskIds::first(pid), &Range { start, len, offset, prot, flags, path: &path, file });
        if is_file && mapping.executable {
            dsos.insert(path.into(), Dso { build_id, of: DsoOwner::User });
        }
    }
}

/// Returns the `PROT_*` and `MAP_*` bits for a line of /proc/PID/maps such as `55d0-55d4 r-xp 0000 ...`.
fn permissions(line: &[u8]) -> (u32, u32) {
    let letters = line.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
    let prot = [(b'r', libc::PROT_READ), (b'w', libc::PROT_WRITE), (b'x', libc::PROT_EXEC)];
    let prot = prot.iter().filter(|(letter, _)| letters.contains(letter)).fold(0, |all, (_, bit)| all | bit);
    let flags = if letters.contains(&b's') { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
    (prot as u32, flags as u32)
}

/// Reads the build ids that no record contained, from the files that are now at the recorded paths.
pub fn fill_in_build_ids(dsos: &mut Dsos) {
    for (path, dso) in dsos.iter_mut().filter(|(_, dso)| dso.build_id.is_none() && dso.of == DsoOwner::User) {
        use std::os::unix::ffi::OsStrExt;
        dso.build_id = build_ids::of_file(Path::new(std::ffi::OsStr::from_bytes(path)));
    }
}

#[cfg(test)]
mod tests {
    use perf_prof_format::record::TrailerLayout;

    use super::*;

    #[test]
    fn permissions_of_lines_of_maps() {
        assert_eq!(permissions(b"55d0-55d4 r-xp 00002000 fe:00 42 /bin/x"), (5, 2));
        assert_eq!(permissions(b"55d0-55d4 rwxs 00002000 fe:00 42 /bin/x"), (7, 1));
        assert_eq!(permissions(b""), (0, 2));
    }

    #[test]
    fn code_of_the_kernel_and_of_bpf_programs() {
        const LIST: &[u8] = b"0000000000000000 A fixed\nffffffff81000000 T _stext\nffffffff81000000 T _text\n\
            ffffffff82000000 T _etext\nffffffffc0001000 t f\t[m]\nffffffffc0022200 t bpf_prog_2_b\t[bpf]\n\
            ffffffffc0022100 t bpf_prog_1_a\t[bpf]\nffffffffc0030000 t kprobe\t[__builtin__kprobes]\n";
        assert_eq!(kernel_text(LIST), Some(("_text", 0xffffffff81000000, 0xffffffff82000000)));
        let programs: [(&[u8], u64, u32); 2] =
            [(b"bpf_prog_1_a", 0xffffffffc0022100, 0x100), (b"bpf_prog_2_b", 0xffffffffc0022200, 64 << 10)];
        assert_eq!(bpf_programs(LIST), programs);
        let list = String::from_utf8_lossy(LIST);
        let hidden: String = list.lines().map(|line| format!("{:016}{}\n", 0, &line[16..])).collect();
        assert_eq!(kernel_text(hidden.as_bytes()), None);
    }

    #[test]
    fn this_process_is_described() {
        let (mut out, mut dsos) = (Synthesis::new(TrailerLayout::new(0)), Dsos::default());
        processes(&mut out, &mut dsos, MappingScope::Code, &[std::process::id()]);
        let own = std::env::current_exe().unwrap();
        assert!(dsos.contains_key(own.as_os_str().as_encoded_bytes()), "{dsos:?}");
    }
}
