//! Parses the text of /proc/PID/maps into mappings. This module opens no files.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use perf_prof_format::record::{Mmap2, MmapFile};

/// A range of a process's addresses, and the file or memory that is mapped there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address of the mapping.
    pub start: u64,
    /// The address after the last address of the mapping.
    pub end: u64,
    /// The offset in the file at which the mapping starts, in bytes.
    pub file_offset: u64,
    /// The major and the minor number of the file's device.
    pub device: (u32, u32),
    /// The file's inode number; 0 if there is no file or the number is not known.
    pub inode: u64,
    /// The inode's generation, which distinguishes files that had the same inode number; 0 if not known.
    pub generation: u64,
    /// The file's path as the process sees it. If there is no file, it is a name such as `[vdso]` or `//anon`, or an
    /// empty path.
    pub path: PathBuf,
    /// Whether the file was removed. Another file may have its path now.
    pub deleted: bool,
    /// Whether code in the mapping can be executed.
    pub executable: bool,
    /// The file's build id, if the kernel reported it.
    pub build_id: Option<Box<[u8]>>,
}

/// The suffix that the kernel appends to the path of a file that was removed (d_path() in fs/d_path.c).
const DELETED: &[u8] = b" (deleted)";

impl From<Mmap2<'_>> for Mapping {
    fn from(record: Mmap2<'_>) -> Self {
        let (path, deleted) = path(record.filename);
        let (device, inode, generation, build_id) = match record.file {
            MmapFile::Inode { major, minor, inode, generation } => ((major, minor), inode, generation, None),
            MmapFile::BuildId(id) => ((0, 0), 0, 0, (!id.is_empty()).then(|| id.into())),
        };
        Self {
            start: record.addr,
            end: record.addr.saturating_add(record.len),
            file_offset: record.pgoff,
            device,
            inode,
            generation,
            path,
            deleted,
            executable: record.prot & libc::PROT_EXEC as u32 != 0,
            build_id,
        }
    }
}

/// Parses text in the format of /proc/PID/maps. Returns the mappings in the order of the text, which is sorted by
/// address. Malformed lines are skipped.
pub fn parse(text: &[u8]) -> impl Iterator<Item = Mapping> {
    text.split(|&byte| byte == b'\n').filter_map(line)
}

fn line(line: &[u8]) -> Option<Mapping> {
    let (range, rest) = word(line)?;
    let (permissions, rest) = word(rest)?;
    let (offset, rest) = word(rest)?;
    let (device, rest) = word(rest)?;
    let (inode, rest) = word(rest)?;
    let (start, end) = range.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    // show_map_vma() in fs/proc/task_mmu.c escapes a line feed in a name as \012, and escapes nothing else.
    let name = rest.trim_ascii_start();
    let (path, deleted) = if name.windows(4).any(|escape| escape == b"\\012") {
        path(&String::from_utf8_lossy(name).replace("\\012", "\n").into_bytes())
    } else {
        path(name)
    };
    (start < end).then_some(Mapping {
        start,
        end,
        file_offset: u64::from_str_radix(offset, 16).ok()?,
        device: (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?),
        inode: inode.parse().ok()?,
        generation: 0,
        path,
        deleted,
        executable: permissions.as_bytes().get(2) == Some(&b'x'),
        build_id: None,
    })
}

fn word(line: &[u8]) -> Option<(&str, &[u8])> {
    let line = line.trim_ascii_start();
    let end = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
    Some((std::str::from_utf8(&line[..end]).ok().filter(|word| !word.is_empty())?, &line[end..]))
}

fn path(name: &[u8]) -> (PathBuf, bool) {
    let (name, deleted) = match name.strip_suffix(DELETED) {
        Some(name) => (name, true),
        None => (name, false),
    };
    (OsString::from_vec(name.to_vec()).into(), deleted)
}

/// The kind of memory in a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backing {
    /// A file with a path.
    File,
    /// The vdso, a library that is part of the kernel.
    Vdso,
    /// Memory without a file. If it contains code, the process generated the code, or moved it from a file to huge
    /// pages.
    Anonymous,
    /// Memory that has a name but no code of interest, such as `[vsyscall]`.
    Special,
}

impl Backing {
    /// Derives the backing from a mapping's path. The kernel writes these names in show_map_vma() (fs/proc/task_mmu.c)
    /// and perf_event_mmap_event() (kernel/events/core.c).
    pub fn from_path(path: &Path) -> Self {
        match path.as_os_str().as_encoded_bytes() {
            b"[vdso]" => Self::Vdso,
            b"" | b"[heap]" | b"[stack]" | b"/dev/zero" | b"/anon_hugepage" => Self::Anonymous,
            name if name.starts_with(b"//") || name.starts_with(b"[anon") || name.starts_with(b"/SYSV") => {
                Self::Anonymous
            }
            name if name.starts_with(b"/memfd:") || name.starts_with(b"/") => Self::File,
            _ => Self::Special,
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: Expect) {
        let shown = parse(text.as_bytes()).map(|mapping| {
            let flags =
                format!("{}{}", if mapping.executable { "x" } else { "-" }, if mapping.deleted { "d" } else { "-" });
            let Mapping { start, end, file_offset, device: (major, minor), inode, path, .. } = mapping;
            format!(
                "{start:x}-{end:x} {flags} {file_offset:#x} {major:x}:{minor:x} {inode} {:?} {path:?}\n",
                Backing::from_path(&path)
            )
        });
        expected.assert_eq(&shown.collect::<String>());
    }

    #[test]
    fn lines() {
        check(
            "55d0c7a00000-55d0c7a01000 r-xp 00001000 fe:00 123   /usr/bin/a program\n\
             7f0000000000-7f0000200000 r-xp 00000000 00:00 0 \n\
             7f0000200000-7f0000201000 r-xp 00002000 08:11 77                         /tmp/x.so (deleted)\n\
             7f0000300000-7f0000301000 rwxp 00000000 00:01 5   /memfd:jit (deleted)\n\
             7f0000400000-7f0000401000 r--p 00000000 00:0f 9   /a\\012b\n\
             7f0000500000-7f0000700000 r-xp 00000000 00:0f 9   /anon_hugepage (deleted)\n\
             7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0   [vdso]\n\
             ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n\
             7f00-7e00 r-xp 0 0:0 0\n\
             nonsense\n",
            expect![[r#"
                55d0c7a00000-55d0c7a01000 x- 0x1000 fe:0 123 File "/usr/bin/a program"
                7f0000000000-7f0000200000 x- 0x0 0:0 0 Anonymous ""
                7f0000200000-7f0000201000 xd 0x2000 8:11 77 File "/tmp/x.so"
                7f0000300000-7f0000301000 xd 0x0 0:1 5 File "/memfd:jit"
                7f0000400000-7f0000401000 -- 0x0 0:f 9 File "/a\nb"
                7f0000500000-7f0000700000 xd 0x0 0:f 9 Anonymous "/anon_hugepage"
                7ffc00000000-7ffc00002000 x- 0x0 0:0 0 Vdso "[vdso]"
                ffffffffff600000-ffffffffff601000 x- 0x0 0:0 0 Special "[vsyscall]"
            "#]],
        );
    }

    #[test]
    fn all_mappings_of_this_process_are_parsed() {
        let text = std::fs::read("/proc/self/maps").unwrap();
        assert_eq!(parse(&text).count(), text.iter().filter(|&&byte| byte == b'\n').count());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(text in any::<Vec<u8>>(), lines in "([0-9a-f]{1,17}-[0-9a-f]{1,17} r-xp [0-9a-f]{1,17} [0-9a-f]{1,9}:0 [0-9]{1,21} .{0,9}\n){0,5}") {
            for mapping in parse(&text).chain(parse(lines.as_bytes())) {
                prop_assert!(mapping.start < mapping.end);
            }
        }
    }
}
