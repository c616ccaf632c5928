//! Which arguments of system calls are file descriptors, and which are the names of files.
//!
//! Source: the formats of `syscalls:sys_enter_*` and `include/linux/syscalls.h` in the Linux tree.

use std::{collections::BTreeSet, sync::LazyLock};

use super::string_arguments::string_arguments;

/// `AT_FDCWD` of include/uapi/linux/fcntl.h: the current folder of the task, in the place of a descriptor.
pub const AT_FDCWD: i32 = -100;

/// A file descriptor among the arguments of a system call: the index of the argument, and the kernel's name for it.
pub type DescriptorArgument = (usize, &'static str);

/// A file name among the arguments of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameArgument {
    /// The index of the argument.
    pub argument: usize,
    /// The index of the argument that is the descriptor of a folder. A relative name belongs to this folder. `None` if
    /// a relative name belongs to the current folder.
    pub folder: Option<usize>,
}

/// The kernel's names for arguments that are always file names.
const NAMES: &[&str] = &[
    "dir_name",
    "filename",
    "from_pathname",
    "new_root",
    "newname",
    "oldname",
    "path",
    "pathname",
    "put_old",
    "special",
    "specialfile",
    "to_pathname",
];
/// The system calls whose argument `name` is a file name. In other calls, the argument `name` is something else, such
/// as the name of an attribute.
const WITH_NAME: &[&str] = &["acct", "name_to_handle_at", "umount", "umount2"];
/// The calls that store the text `oldname` in a symbolic link. They open no file of this name.
const LINKS: &[&str] = &["symlink", "symlinkat"];
/// The system call that has a descriptor and a file name, but the descriptor is not a folder: it is an inotify
/// instance.
const WATCH: &str = "inotify_add_watch";

/// Returns the arguments of a system call that are file descriptors of the calling process, in their order.
pub fn descriptor_arguments(call: &str) -> &'static [DescriptorArgument] {
    /// The calls in the order of their names. Each span of a call looks its arguments up, some thirty times.
    static BY_NAME: LazyLock<Vec<(&str, &[DescriptorArgument])>> = LazyLock::new(|| {
        let of = |(arguments, calls): &(&'static [DescriptorArgument], &'static [&'static str])| {
            let arguments = *arguments;
            calls.iter().map(move |call| (*call, arguments))
        };
        let mut all: Vec<_> = CALLS.iter().flat_map(of).collect();
        all.sort_unstable();
        all
    });
    match BY_NAME.binary_search_by_key(&call, |(name, _)| name) {
        Ok(at) => BY_NAME[at].1,
        Err(_) => &[],
    }
}

/// Returns the arguments of a system call that are names of files, in their order.
pub fn name_arguments(call: &str) -> impl Iterator<Item = NameArgument> {
    let descriptors = descriptor_arguments(call);
    let is_name = move |name: &str| match name {
        "name" => WITH_NAME.contains(&call),
        "oldname" => !LINKS.contains(&call),
        name => NAMES.contains(&name),
    };
    string_arguments(call).iter().filter(move |(_, name)| is_name(name)).map(move |&(argument, _)| {
        let before = argument.checked_sub(1).filter(|_| call != WATCH);
        let folder = before.filter(|before| descriptors.iter().any(|(descriptor, _)| descriptor == before));
        NameArgument { argument, folder }
    })
}

/// Returns whether the kernel gives this name to arguments that are file descriptors.
pub fn is_descriptor(name: &str) -> bool {
    CALLS.iter().any(|(arguments, _)| arguments.iter().any(|(_, of_call)| *of_call == name))
}

/// Returns the kernel's names of all arguments that are file descriptors, each once.
pub fn descriptor_names() -> BTreeSet<&'static str> {
    CALLS.iter().flat_map(|(arguments, _)| arguments.iter().map(|(_, name)| *name)).collect()
}

/// Lists of descriptor arguments, each with the names of the system calls that have exactly these arguments.
#[rustfmt::skip]
const CALLS: &[(&[DescriptorArgument], &[&str])] = &[
    (&[(0, "fd")], &[
        "accept", "accept4", "bind", "cachestat", "close", "connect", "execveat", "fadvise64", "fallocate", "fchdir", "fchmod",
        "fchown", "fcntl", "fdatasync", "fgetxattr", "finit_module", "flistxattr", "flock", "fremovexattr", "fsconfig",
        "fsetxattr", "fstat", "fstatfs", "fsync", "ftruncate", "getdents", "getdents64", "getpeername", "getsockname",
        "getsockopt", "inotify_add_watch", "inotify_rm_watch", "io_uring_enter", "io_uring_register", "ioctl", "listen", "lseek",
        "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "quotactl_fd", "read", "readahead", "readv",
        "recvfrom", "recvmmsg", "recvmsg", "sendmmsg", "sendmsg", "sendto", "setns", "setsockopt", "shutdown", "sync_file_range",
        "syncfs", "vmsplice", "write", "writev",
        // Of 32-bit programs.
        "_llseek", "fadvise64_64", "fchown32", "fcntl64", "fstat64", "fstatfs64", "ftruncate64", "oldfstat", "readdir",
        "recvmmsg_time64",
    ]),
    (&[(0, "dfd")], &[
        "faccessat", "faccessat2", "fchmodat", "fchmodat2", "fchownat", "file_getattr", "file_setattr", "fspick", "fstatat64",
        "futimesat", "getxattrat", "listxattrat", "mkdirat", "mknodat", "mount_setattr", "name_to_handle_at", "newfstatat", "open_tree",
        "open_tree_attr", "openat", "openat2", "readlinkat", "removexattrat", "setxattrat", "statx", "unlinkat", "utimensat",
        "utimensat_time64",
    ]),
    (&[(0, "oldfd")], &["dup2", "dup3"]),
    (&[(0, "fildes")], &["dup"]),
    (&[(0, "epfd")], &["epoll_pwait", "epoll_pwait2", "epoll_wait"]),
    (&[(0, "epfd"), (2, "fd")], &["epoll_ctl"]),
    (&[(0, "fd_in"), (2, "fd_out")], &["copy_file_range", "splice"]),
    (&[(0, "fdin"), (1, "fdout")], &["tee"]),
    (&[(0, "out_fd"), (1, "in_fd")], &["sendfile", "sendfile64"]),
    (&[(0, "olddfd"), (2, "newdfd")], &["linkat", "renameat", "renameat2"]),
    (&[(0, "from_dfd"), (2, "to_dfd")], &["move_mount"]),
    (&[(1, "newdfd")], &["symlinkat"]),
    (&[(0, "fanotify_fd"), (3, "dfd")], &["fanotify_mark"]),
    (&[(0, "fs_fd")], &["fsmount"]),
    (&[(0, "mountdirfd")], &["open_by_handle_at"]),
    (&[(0, "mqdes")], &["mq_getsetattr", "mq_notify", "mq_timedreceive", "mq_timedreceive_time64", "mq_timedsend", "mq_timedsend_time64"]),
    (&[(0, "pidfd")], &["pidfd_getfd", "pidfd_send_signal", "process_madvise", "process_mrelease"]),
    (&[(0, "ruleset_fd")], &["landlock_add_rule", "landlock_restrict_self"]),
    (&[(0, "ufd")], &[
        "signalfd", "signalfd4", "timerfd_gettime", "timerfd_gettime64", "timerfd_settime", "timerfd_settime64",
    ]),
    (&[(4, "fd")], &["mmap", "mmap2"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::string_arguments::MOST_ARGUMENTS;

    #[test]
    fn each_call_has_its_descriptors_once() {
        let mut names: Vec<&str> = CALLS.iter().flat_map(|(_, calls)| calls.iter().copied()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(CALLS.iter().flat_map(|(arguments, _)| *arguments).all(|(at, _)| *at < MOST_ARGUMENTS));
        assert_eq!(descriptor_arguments("mmap"), [(4, "fd")]);
        assert_eq!(descriptor_arguments("getpid"), []);
    }

    #[test]
    fn a_relative_name_belongs_to_the_descriptor_before_it() {
        let names = |call| name_arguments(call).map(|name| (name.argument, name.folder)).collect::<Vec<_>>();
        assert_eq!(names("openat"), [(1, Some(0))]);
        assert_eq!(names("open"), [(0, None)]);
        assert_eq!(names("renameat2"), [(1, Some(0)), (3, Some(2))]);
        assert_eq!(names("symlinkat"), [(2, Some(1))]);
        assert_eq!(names("inotify_add_watch"), [(1, None)]);
        assert_eq!(names("umount2"), [(0, None)]);
        // These strings name attributes, keys and file systems, not files.
        assert_eq!(["fgetxattr", "add_key", "fsopen"].map(names), [const { Vec::new() }; 3]);
        assert_eq!(names("getxattr"), [(0, None)]);
    }
}
