//! Opens and examines files with names that come from outside. Opening never blocks. Does not know what the files
//! contain.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd, FromRawFd, RawFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
};

use super::call::{CallError, check};

/// Opens a regular file for reading. Returns an error for every other kind of file: a pipe would block until there is a
/// writer, and a device might do anything.
pub fn open_regular(path: &Path) -> Result<File, CallError> {
    let wrong = |error| CallError::new(format!("open {}", path.display()), error);
    let file =
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).map_err(wrong)?;
    match file.metadata().map_err(wrong)?.is_file() {
        true => Ok(file),
        false => Err(wrong(io::Error::other("not a regular file"))),
    }
}

/// Fills `buffer` with the bytes of a file from `offset` on. Returns the number of bytes, which is smaller than the
/// buffer only if the file ends there. `read` may return fewer bytes than requested; 0 means the end of the file.
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

/// Duplicates the caller's descriptor `fd`. Returns an owned descriptor for the same file.
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
        // posix_fallocate returns the error and does not set errno.
        error => Err(CallError::new("posix_fallocate", io::Error::from_raw_os_error(error))),
    }
}

/// Returns the generation of a file's inode. It changes each time the inode is reused. Mmap records contain the same
/// number. Returns `None` if the file system does not report it.
pub fn generation(file: &File) -> Option<u32> {
    // The request is declared for a long, but file systems write only an int at its start (ext4_ioctl() in
    // fs/ext4/ioctl.c).
    let mut found = [0; size_of::<libc::c_long>() / size_of::<u32>()];
    // SAFETY: the descriptor is open while `file` is borrowed, and `found` has the size of a long, as the request
    // states.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETVERSION, found.as_mut_ptr()) };
    (result == 0).then_some(found[0])
}

/// Says if a file's inode number from `stat` can be compared with the inode number in a memory map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeNumbers {
    /// Memory maps show the same number.
    AsMapped,
    /// Memory maps may show another inode number: the number of the file in a lower layer of an overlay file system.
    OfOtherFiles,
}

/// Returns whether the file's file system has the same inode numbers in `stat` and in memory maps.
pub fn inodes(file: &File) -> InodeNumbers {
    // SAFETY: `statfs` consists of plain numbers, so all zeroes is a valid value.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open while `file` is borrowed, and `found` has the type that the call fills.
    let result = unsafe { libc::fstatfs(file.as_raw_fd(), &mut found) };
    // On overlayfs, memory maps show the inode of the lower layer before Linux 6.8 (file_user_inode() in
    // include/linux/fs.h).
    let overlay = result == 0 && i128::from(found.f_type) == i128::from(libc::OVERLAYFS_SUPER_MAGIC);
    if overlay { InodeNumbers::OfOtherFiles } else { InodeNumbers::AsMapped }
}
