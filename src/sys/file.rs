//! Files that somebody else names, opened so that no name makes us wait.

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

/// Opens a regular file for reading. A pipe of that name would wait for a writer, a device might do anything: both are
/// errors.
pub fn open_regular(path: &Path) -> Result<File, CallError> {
    let wrong = |error| CallError::new(format!("open {}", path.display()), error);
    let file =
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).map_err(wrong)?;
    match file.metadata().map_err(wrong)?.is_file() {
        true => Ok(file),
        false => Err(wrong(io::Error::other("not a regular file"))),
    }
}

/// A descriptor of our own for what `fd`, which somebody handed us, leads to.
pub fn duplicate(fd: RawFd) -> Result<File, CallError> {
    // SAFETY: no pointers are passed; a number that is no descriptor is an error.
    let own = check("fcntl F_DUPFD_CLOEXEC", unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) })?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    Ok(unsafe { File::from_raw_fd(own) })
}

/// Makes room on the disk for the first `size` bytes of a file.
pub fn allocate(file: &File, size: u64) -> Result<(), CallError> {
    // SAFETY: no pointers are passed, and the descriptor is open while `file` is borrowed.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size as libc::off_t) } {
        0 => Ok(()),
        // It returns the error instead of setting errno.
        error => Err(CallError::new("posix_fallocate", io::Error::from_raw_os_error(error))),
    }
}

/// How often a file's inode was used anew, as memory maps show it, where its file system tells.
pub fn generation(file: &File) -> Option<u32> {
    // Declared with a long, and filled with an int (ext4_ioctl() in fs/ext4/ioctl.c), which is at its begin.
    let mut found = [0; size_of::<libc::c_long>() / size_of::<u32>()];
    // SAFETY: the descriptor is open while `file` is borrowed, and `found` has the size that the request's number has.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETVERSION, found.as_mut_ptr()) };
    (result == 0).then_some(found[0])
}

/// What a file's inode number, as `stat` tells it, is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inodes {
    /// It is the one in memory maps.
    AsMapped,
    /// Memory maps may show the number of a file of another layer.
    OfOtherFiles,
}

/// Whether inode numbers of the file system that a file is on are the ones that memory maps show.
pub fn inodes(file: &File) -> Inodes {
    // SAFETY: `statfs` is plain numbers, for which zeroes are a value.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open while `file` is borrowed, and `found` is large enough by its type.
    let result = unsafe { libc::fstatfs(file.as_raw_fd(), &mut found) };
    // On overlayfs a map shows the inode below until Linux 6.8 (file_user_inode() in include/linux/fs.h).
    let overlay = result == 0 && i128::from(found.f_type) == i128::from(libc::OVERLAYFS_SUPER_MAGIC);
    if overlay { Inodes::OfOtherFiles } else { Inodes::AsMapped }
}
