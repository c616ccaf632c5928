//! Which arguments of system calls are strings: `const char __user *` in the kernel's prototypes. Buffers with a length
//! in another argument (`write`) are not strings.
//!
//! Source: the formats of `syscalls:sys_enter_*` and `include/linux/syscalls.h` in the Linux tree.

use std::collections::BTreeSet;

/// The most arguments that a system call has.
pub const MOST_ARGUMENTS: usize = 6;

/// A string among the arguments of a system call: the index of the argument, and the kernel's name for it.
pub type StringArgument = (usize, &'static str);

/// Returns the arguments of a system call that are strings, in their order.
pub fn string_arguments(call: &str) -> &'static [StringArgument] {
    match CALLS.binary_search_by_key(&call, |(name, _)| name) {
        Ok(at) => CALLS[at].1,
        Err(_) => &[],
    }
}

/// Returns the names of all arguments that are strings, each once.
pub fn names() -> BTreeSet<&'static str> {
    CALLS.iter().flat_map(|(_, arguments)| arguments.iter().map(|(_, name)| *name)).collect()
}

const CALLS: &[(&str, &[StringArgument])] = &[
    ("access", &[(0, "filename")]),
    ("acct", &[(0, "name")]),
    ("add_key", &[(0, "_type"), (1, "_description")]),
    ("chdir", &[(0, "filename")]),
    ("chmod", &[(0, "filename")]),
    ("chown", &[(0, "filename")]),
    ("chown32", &[(0, "filename")]),
    ("chroot", &[(0, "filename")]),
    ("creat", &[(0, "pathname")]),
    ("delete_module", &[(0, "name_user")]),
    ("execve", &[(0, "filename")]),
    ("execveat", &[(1, "filename")]),
    ("faccessat", &[(1, "filename")]),
    ("faccessat2", &[(1, "filename")]),
    ("fanotify_mark", &[(4, "pathname")]),
    ("fchmodat", &[(1, "filename")]),
    ("fchmodat2", &[(1, "filename")]),
    ("fchownat", &[(1, "filename")]),
    ("fgetxattr", &[(1, "name")]),
    ("file_getattr", &[(1, "filename")]),
    ("file_setattr", &[(1, "filename")]),
    ("finit_module", &[(1, "uargs")]),
    ("fremovexattr", &[(1, "name")]),
    ("fsconfig", &[(2, "_key")]),
    ("fsetxattr", &[(1, "name")]),
    ("fsopen", &[(0, "_fs_name")]),
    ("fspick", &[(1, "path")]),
    ("fstatat64", &[(1, "filename")]),
    ("futimesat", &[(1, "filename")]),
    ("getxattr", &[(0, "pathname"), (1, "name")]),
    ("getxattrat", &[(1, "pathname"), (3, "name")]),
    ("inotify_add_watch", &[(1, "pathname")]),
    ("lchown", &[(0, "filename")]),
    ("lchown32", &[(0, "filename")]),
    ("lgetxattr", &[(0, "pathname"), (1, "name")]),
    ("link", &[(0, "oldname"), (1, "newname")]),
    ("linkat", &[(1, "oldname"), (3, "newname")]),
    ("listxattr", &[(0, "pathname")]),
    ("listxattrat", &[(1, "pathname")]),
    ("llistxattr", &[(0, "pathname")]),
    ("lremovexattr", &[(0, "pathname"), (1, "name")]),
    ("lsetxattr", &[(0, "pathname"), (1, "name")]),
    ("lstat", &[(0, "filename")]),
    ("lstat64", &[(0, "filename")]),
    ("memfd_create", &[(0, "uname")]),
    ("mkdir", &[(0, "pathname")]),
    ("mkdirat", &[(1, "pathname")]),
    ("mknod", &[(0, "filename")]),
    ("mknodat", &[(1, "filename")]),
    ("mount", &[(0, "dev_name"), (1, "dir_name"), (2, "type")]),
    ("mount_setattr", &[(1, "path")]),
    ("move_mount", &[(1, "from_pathname"), (3, "to_pathname")]),
    ("mq_open", &[(0, "u_name")]),
    ("mq_unlink", &[(0, "u_name")]),
    ("name_to_handle_at", &[(1, "name")]),
    ("newfstatat", &[(1, "filename")]),
    ("oldlstat", &[(0, "filename")]),
    ("oldstat", &[(0, "filename")]),
    ("open", &[(0, "filename")]),
    ("open_tree", &[(1, "filename")]),
    ("open_tree_attr", &[(1, "filename")]),
    ("openat", &[(1, "filename")]),
    ("openat2", &[(1, "filename")]),
    ("pivot_root", &[(0, "new_root"), (1, "put_old")]),
    ("quotactl", &[(1, "special")]),
    ("readlink", &[(0, "path")]),
    ("readlinkat", &[(1, "pathname")]),
    ("removexattr", &[(0, "pathname"), (1, "name")]),
    ("removexattrat", &[(1, "pathname"), (3, "name")]),
    ("rename", &[(0, "oldname"), (1, "newname")]),
    ("renameat", &[(1, "oldname"), (3, "newname")]),
    ("renameat2", &[(1, "oldname"), (3, "newname")]),
    ("request_key", &[(0, "_type"), (1, "_description"), (2, "_callout_info")]),
    ("rmdir", &[(0, "pathname")]),
    ("setxattr", &[(0, "pathname"), (1, "name")]),
    ("setxattrat", &[(1, "pathname"), (3, "name")]),
    ("stat", &[(0, "filename")]),
    ("stat64", &[(0, "filename")]),
    ("statfs", &[(0, "pathname")]),
    ("statfs64", &[(0, "pathname")]),
    ("statx", &[(1, "filename")]),
    ("swapoff", &[(0, "specialfile")]),
    ("swapon", &[(0, "specialfile")]),
    ("symlink", &[(0, "oldname"), (1, "newname")]),
    ("symlinkat", &[(0, "oldname"), (2, "newname")]),
    ("truncate", &[(0, "path")]),
    ("truncate64", &[(0, "path")]),
    ("umount", &[(0, "name")]),
    ("umount2", &[(0, "name")]),
    ("unlink", &[(0, "pathname")]),
    ("unlinkat", &[(1, "pathname")]),
    ("utime", &[(0, "filename")]),
    ("utimensat", &[(1, "filename")]),
    ("utimensat_time64", &[(1, "filename")]),
    ("utimes", &[(0, "filename")]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_by_their_names() {
        assert!(CALLS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(string_arguments("openat"), [(1, "filename")]);
        assert_eq!(string_arguments("renameat2"), [(1, "oldname"), (3, "newname")]);
        // `buf` of `write` is not a string, because another argument is its length.
        assert!(string_arguments("write").is_empty());
        let is_argument = |(at, _): &StringArgument| *at < MOST_ARGUMENTS;
        assert!(CALLS.iter().all(|(_, arguments)| !arguments.is_empty() && arguments.iter().all(is_argument)));
    }
}
