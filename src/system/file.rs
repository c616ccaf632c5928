//! Opens and examines files whose names come from users or recordings. Opening never blocks.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd, FromRawFd, RawFd},
        unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use rustix::fs::fstatfs;

use super::call::{CallError, check};
use crate::mutex::Mutex;

/// Opens a regular file for reading. Returns an error for every other kind of file, and does not open it. Opening a
/// pipe would block until there is a writer. Opening a device may already have an effect, for example start a watchdog.
pub fn open_regular(path: &Path) -> Result<File, CallError> {
    let wrong = |error| CallError::new(format!("open {}", path.display()), error);
    let open = |path: &Path| OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    // O_PATH finds the file and does not open it (open(2)).
    let found = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).map_err(wrong)?;
    let is_regular = |file: &File| file.metadata().map(|metadata| metadata.is_file());
    if !is_regular(&found).map_err(wrong)? {
        return Err(wrong(io::Error::other("not a regular file")));
    }
    // This path leads to the file that was found, even if another file is at `path` now (proc_pid_fd(5)).
    match open(&path_of(&found)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened.map_err(wrong),
    }
    // Without procfs, the file is opened by its own path.
    let file = open(path).map_err(wrong)?;
    match is_regular(&file).map_err(wrong)? {
        true => Ok(file),
        false => Err(wrong(io::Error::other("not a regular file"))),
    }
}

/// Returns whether the standard input is a pipe.
pub fn stdin_is_pipe() -> bool {
    let stdin = duplicate(libc::STDIN_FILENO).ok().and_then(|stdin| stdin.metadata().ok());
    stdin.is_some_and(|metadata| metadata.file_type().is_fifo())
}

/// Returns a path that leads to an open file, even if another file is at the file's own path now. The path is valid in
/// this process only, and only while the file is open.
fn path_of(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// A regular file that stays open as long as a clone of this value exists. All values of the same file share one
/// descriptor.
#[derive(Clone, Debug)]
pub struct SharedFile(Arc<File>);

/// All files that are open as a `SharedFile`.
static SHARED: Mutex<Vec<Weak<File>>> = Mutex::new(Vec::new());

impl SharedFile {
    /// Opens a regular file for reading. If the same file is open already, returns a clone of the existing value.
    pub fn open(path: &Path) -> Result<Self, CallError> {
        let file = open_regular(path)?;
        let inode = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok();
        let mut shared = SHARED.lock();
        shared.retain(|file| file.strong_count() > 0);
        // While a file is open, its device and inode numbers are not reused.
        let same = shared.iter().filter_map(Weak::upgrade).find(|other| inode(other) == inode(&file));
        let file = same.unwrap_or_else(|| {
            let file = Arc::new(file);
            shared.push(Arc::downgrade(&file));
            file
        });
        Ok(Self(file))
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.0
    }

    /// Returns a path that leads to the file, even if another file is at the file's own path now.
    pub fn path(&self) -> PathBuf {
        path_of(&self.0)
    }
}

impl PartialEq for SharedFile {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SharedFile {}

/// Fills `buffer` with the bytes of a file from `offset` on. Returns the number of bytes, which is smaller than the
/// size of `buffer` only if the file ends there. `read` may return fewer bytes than requested; 0 means the end of the
/// file.
pub fn fill(buffer: &mut [u8], offset: u64, read: impl Fn(&mut [u8], u64) -> io::Result<usize>) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read(&mut buffer[filled..], offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Duplicates the descriptor `fd`. Returns an owned descriptor of the same open file.
pub fn duplicate(fd: RawFd) -> Result<File, CallError> {
    // SAFETY: no pointers are passed. A number that is not a descriptor gives an error.
    let own = check("fcntl F_DUPFD_CLOEXEC", unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) })?;
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(own) })
}

/// Allocates disk space for the first `size` bytes of a file.
pub fn allocate(file: &File, size: u64) -> Result<(), CallError> {
    // SAFETY: no pointers are passed, and the descriptor is open while `file` is borrowed.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size as libc::off_t) } {
        0 => Ok(()),
        // posix_fallocate returns the error number and does not set errno.
        error => Err(CallError::new("posix_fallocate", io::Error::from_raw_os_error(error))),
    }
}

/// Returns the generation of a file's inode. The file system changes the generation each time it reuses the inode. Mmap
/// records contain the same number. Returns `None` if the file system does not report the generation.
pub fn generation(file: &File) -> Option<u32> {
    // The ioctl is declared with a long, but file systems write only an int at its start (ext4_ioctl() in
    // fs/ext4/ioctl.c).
    let mut found = [0; size_of::<libc::c_long>() / size_of::<u32>()];
    // SAFETY: the descriptor is open while `file` is borrowed, and `found` has the size of a long, as the request
    // states.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETVERSION, found.as_mut_ptr()) };
    (result == 0).then_some(found[0])
}

/// Says whether the inode number of a file from `stat` can be compared with the inode number in memory maps
/// (/proc/PID/maps, mmap records).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeNumbers {
    /// Memory maps show the same number.
    AsMapped,
    /// Memory maps may show another inode number: the number of the file in a lower layer of an overlay file system.
    OfOtherFiles,
}

/// Returns whether `stat` and memory maps show the same inode numbers for the file system of this file.
pub fn inodes(file: &File) -> InodeNumbers {
    // On overlayfs before Linux 6.8, memory maps show the inode of the lower layer (file_user_inode() in
    // include/linux/fs.h).
    let overlay = fstatfs(file).is_ok_and(|found| i128::from(found.f_type) == i128::from(libc::OVERLAYFS_SUPER_MAGIC));
    if overlay { InodeNumbers::OfOtherFiles } else { InodeNumbers::AsMapped }
}

#[cfg(test)]
mod tests {
    use std::{ffi::CString, os::unix::ffi::OsStrExt};

    use super::*;

    /// Returns how many times the file is opened while `body` runs.
    fn opened(path: &Path, body: impl FnOnce()) -> usize {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: no pointers are passed. The descriptor belongs to nobody else.
        let mut events =
            unsafe { File::from_raw_fd(check("inotify_init1", libc::inotify_init1(libc::IN_NONBLOCK)).unwrap()) };
        // SAFETY: `name` ends with a NUL and lives longer than the call.
        check("inotify_add_watch", unsafe {
            libc::inotify_add_watch(events.as_raw_fd(), name.as_ptr(), libc::IN_OPEN)
        })
        .unwrap();
        body();
        let mut bytes = [0; 4096];
        match std::io::Read::read(&mut events, &mut bytes) {
            Ok(size) => size / size_of::<libc::inotify_event>(),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                0
            }
        }
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "text").unwrap();
        assert_eq!(opened(&path, || drop(open_regular(&path).unwrap())), 1);
        let pipe = folder.path().join("pipe");
        let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: `name` ends with a NUL and lives longer than the call.
        check("mkfifo", unsafe { libc::mkfifo(name.as_ptr(), 0o600) }).unwrap();
        let refused = |path: &Path| open_regular(path).unwrap_err().to_string().ends_with("not a regular file");
        assert_eq!(opened(&pipe, || assert!(refused(&pipe))), 0);
        assert_eq!(opened(folder.path(), || assert!(refused(folder.path()))), 0);
        let device = folder.path().join("device");
        let name = CString::new(device.as_os_str().as_bytes()).unwrap();
        // SAFETY: `name` ends with a NUL and lives longer than the call.
        if unsafe { libc::mknod(name.as_ptr(), libc::S_IFCHR | 0o600, libc::makedev(1, 3)) } == 0 {
            assert_eq!(opened(&device, || assert!(refused(&device))), 0);
        }
        assert_eq!(open_regular(&folder.path().join("none")).unwrap_err().source.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_path_of_an_open_file_leads_to_it_after_another_file_took_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "first").unwrap();
        let file = SharedFile::open(&path).unwrap();
        assert_eq!(SharedFile::open(&path).unwrap(), file);
        std::fs::rename(&path, folder.path().join("away")).unwrap();
        std::fs::write(&path, "second").unwrap();
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "first");
        assert_ne!(SharedFile::open(&path).unwrap(), file);
    }
}
