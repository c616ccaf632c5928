//! The offsets in the kernel's structures that programs need to build paths, from the kernel's BTF.

use perf_prof_format::tracefs::Btf;

/// The offsets of the members that programs read, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct PathTypes {
    pub task_files: i32,
    pub task_fs: i32,
    /// How a task's mount namespace is found; `None` if the kernel has no mount namespaces.
    pub namespace: Option<NamespaceTypes>,
    pub files_fdt: i32,
    pub table_max: i32,
    pub table_files: i32,
    pub file_path: i32,
    pub fs_root: i32,
    pub fs_pwd: i32,
    /// The root entry of a mount, in the `vfsmount`.
    pub mount_top: i32,
    /// The `vfsmount` in the `mount`. Paths point to the `vfsmount`.
    pub mount_part: i32,
    pub mount_parent: i32,
    pub mount_point: i32,
    pub entry_hash: i32,
    pub entry_parent: i32,
    pub entry_name: i32,
    pub entry_inode: i32,
    pub entry_operations: i32,
    pub entry_super: i32,
    pub operations_name: i32,
    pub name_length: i32,
    pub name_text: i32,
    pub inode_number: i32,
    pub super_magic: i32,
    /// The state of a task whose bit `TS_COMPAT` says that it makes a call of 32-bit programs; `None` on other machines than x86-64.
    pub task_status: Option<i32>,
    /// The kernel's iterator over numbers; `None` before Linux 6.4.
    pub iterator: Option<NumberIterator>,
}

/// The offsets of the members that lead from a task to the number and the id of its mount namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct NamespaceTypes {
    pub task_proxy: i32,
    pub proxy_namespace: i32,
    pub namespace_number: i32,
    pub namespace_id: i32,
}

/// The BTF ids of the functions of `bpf_iter_num`, the kernel's iterator over numbers. If this iterator counts the
/// iterations of a loop, the verifier checks the loop's code once. Other loops are checked iteration by iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct NumberIterator {
    pub new: i32,
    pub next: i32,
    pub destroy: i32,
}

impl PathTypes {
    /// Returns whether programs need this structure or function.
    pub fn needs(name: &str) -> bool {
        const NEEDED: [&str; 21] = [
            "task_struct",
            "thread_info",
            "files_struct",
            "fdtable",
            "file",
            "path",
            "fs_struct",
            "vfsmount",
            "mount",
            "dentry",
            "dentry_operations",
            "qstr",
            "inode",
            "super_block",
            "hlist_bl_node",
            "nsproxy",
            "mnt_namespace",
            "ns_common",
            "bpf_iter_num_new",
            "bpf_iter_num_next",
            "bpf_iter_num_destroy",
        ];
        NEEDED.contains(&name)
    }

    /// Returns the offsets. Returns `None` if a member is missing, or is not where programs expect it.
    pub fn of(types: &Btf) -> Option<PathTypes> {
        let at = |tag: &str, member: &str| {
            let place = types.member(tag, member).filter(|place| place.size == 0)?;
            i32::try_from(place.offset / 8).ok()
        };
        // Programs read both members of a `struct path` at once.
        let is_path = (at("path", "mnt")?, at("path", "dentry")?) == (0, 8) && types.size_of("struct path")? == 16;
        let is_name = types.size_of("struct qstr")? == 16;
        (is_path && is_name).then_some(())?;
        let namespace = || {
            Some(NamespaceTypes {
                task_proxy: at("task_struct", "nsproxy")?,
                proxy_namespace: at("nsproxy", "mnt_ns")?,
                namespace_number: at("mnt_namespace", "ns")? + at("ns_common", "inum")?,
                // Linux 6.18 has the id in the part that all kinds of namespaces have.
                namespace_id: at("mnt_namespace", "seq")
                    .or_else(|| Some(at("mnt_namespace", "ns")? + at("ns_common", "ns_id")?))?,
            })
        };
        Some(PathTypes {
            task_files: at("task_struct", "files")?,
            task_fs: at("task_struct", "fs")?,
            namespace: namespace(),
            files_fdt: at("files_struct", "fdt")?,
            table_max: at("fdtable", "max_fds")?,
            table_files: at("fdtable", "fd")?,
            file_path: at("file", "f_path")?,
            fs_root: at("fs_struct", "root")?,
            fs_pwd: at("fs_struct", "pwd")?,
            mount_top: at("vfsmount", "mnt_root")?,
            mount_part: at("mount", "mnt")?,
            mount_parent: at("mount", "mnt_parent")?,
            mount_point: at("mount", "mnt_mountpoint")?,
            // `pprev` is 0 in a removed entry.
            entry_hash: at("dentry", "d_hash")? + at("hlist_bl_node", "pprev")?,
            entry_parent: at("dentry", "d_parent")?,
            entry_name: at("dentry", "d_name")?,
            entry_inode: at("dentry", "d_inode")?,
            entry_operations: at("dentry", "d_op")?,
            entry_super: at("dentry", "d_sb")?,
            operations_name: at("dentry_operations", "d_dname")?,
            name_length: at("qstr", "len")?,
            name_text: at("qstr", "name")?,
            inode_number: at("inode", "i_ino")?,
            super_magic: at("super_block", "s_magic")?,
            task_status: at("task_struct", "thread_info")
                .filter(|_| cfg!(target_arch = "x86_64"))
                .and_then(|info| Some(info + at("thread_info", "status")?)),
            iterator: NumberIterator::of(types),
        })
    }
}

impl NumberIterator {
    /// Returns whether the iterator needs this function.
    pub fn needs(name: &str) -> bool {
        name.starts_with("bpf_iter_num_")
    }

    /// Returns the functions; `None` if the kernel has no such iterator.
    pub fn of(types: &Btf) -> Option<NumberIterator> {
        let number = |name| types.function(name).and_then(|number| i32::try_from(number).ok());
        Some(NumberIterator {
            new: number("bpf_iter_num_new")?,
            next: number("bpf_iter_num_next")?,
            destroy: number("bpf_iter_num_destroy")?,
        })
    }
}
