//! Tests that the paths are those in the kernel's structures. A machine of the tests provides these structures.

use std::sync::Arc;

use perf_prof_format::{
    tracefs::{ARGUMENTS, EventFormat, string_of_argument},
    value::Value,
};

use super::*;
use crate::{
    instruction::interpreter::Machine,
    paths::{NamespaceTypes, PathTypes, bits_of_call},
    select::Selection,
    table::tests::records::{event, shipped},
};

const READ: u32 = 0;
const OPENAT: u32 = 257;

/// Offsets that no kernel has.
const TYPES: PathTypes = PathTypes {
    task_files: 8,
    task_fs: 24,
    namespace: Some(NamespaceTypes { task_proxy: 40, proxy_namespace: 16, namespace_number: 20, namespace_id: 32 }),
    files_fdt: 16,
    table_max: 4,
    table_files: 8,
    file_path: 32,
    fs_root: 8,
    fs_pwd: 40,
    mount_top: 8,
    mount_part: 24,
    mount_parent: 8,
    mount_point: 16,
    entry_hash: 8,
    entry_parent: 16,
    entry_name: 24,
    entry_inode: 40,
    entry_operations: 48,
    entry_super: 56,
    operations_name: 16,
    name_length: 4,
    name_text: 8,
    inode_number: 8,
    super_magic: 8,
    task_status: Some(24),
    iterator: None,
};

/// A kernel with a task. Its objects are 4,096 bytes apart.
#[derive(Default)]
struct Kernel {
    objects: Vec<(u64, Vec<u8>)>,
}

impl Kernel {
    /// Adds an object that contains these words at these offsets. Returns its address.
    fn object(&mut self, words: &[(i32, u64)]) -> u64 {
        let address = 0xffff_8880_0000_0000 + 0x1000 * self.objects.len() as u64;
        let mut bytes = vec![0; 128];
        words.iter().for_each(|(at, word)| bytes[*at as usize..][..8].copy_from_slice(&word.to_ne_bytes()));
        self.objects.push((address, bytes));
        address
    }

    fn set(&mut self, object: u64, at: i32, word: u64) {
        let (_, bytes) = self.objects.iter_mut().find(|(address, _)| *address == object).unwrap();
        bytes[at as usize..][..8].copy_from_slice(&word.to_ne_bytes());
    }

    /// Adds an entry to a folder. Without a folder, the entry is a root.
    fn entry(&mut self, folder: Option<u64>, name: &str) -> u64 {
        let text = self.object(&[]);
        let (_, bytes) = self.objects.last_mut().unwrap();
        *bytes = [name.as_bytes(), &[0]].concat();
        let length = (name.len() as u64) << 32 | 0x1234;
        let entry = self.object(&[(TYPES.entry_name, length), (TYPES.entry_name + 8, text), (TYPES.entry_hash, 1)]);
        self.set(entry, TYPES.entry_parent, folder.unwrap_or(entry));
        entry
    }

    /// Adds a mount. Returns the address of its `vfsmount`, to which paths point. Without a parent, it is the first mount.
    fn mount(&mut self, top: u64, at: Option<(u64, u64)>) -> u64 {
        let mount = self.object(&[(TYPES.mount_part + TYPES.mount_top, top)]);
        let (parent, point) = at.map_or((mount, top), |(parent, point)| (parent - TYPES.mount_part as u64, point));
        self.set(mount, TYPES.mount_parent, parent);
        self.set(mount, TYPES.mount_point, point);
        mount + TYPES.mount_part as u64
    }

    /// Adds a task with these open files. Each file is given by its mount and its entry. Returns the task's address.
    fn task(&mut self, files: &[(u64, u64)], folder: (u64, u64), root: (u64, u64)) -> u64 {
        let files: Vec<u64> = files
            .iter()
            .map(|&(mount, entry)| self.object(&[(TYPES.file_path, mount), (TYPES.file_path + 8, entry)]))
            .collect();
        let array: Vec<(i32, u64)> = (0..).step_by(8).zip(files.iter().copied()).collect();
        let array = self.object(&array);
        let table = self.object(&[(0, (files.len() as u64) << 32), (TYPES.table_files, array)]);
        let files = self.object(&[(TYPES.files_fdt, table)]);
        let folders = [(TYPES.fs_root, root), (TYPES.fs_pwd, folder)];
        let words: Vec<(i32, u64)> =
            folders.iter().flat_map(|(at, (mount, entry))| [(*at, *mount), (at + 8, *entry)]).collect();
        let folders = self.object(&words);
        self.object(&[(TYPES.task_files, files), (TYPES.task_fs, folders)])
    }

    /// Returns the format of the begins of calls, and the record of a call with these arguments.
    fn record(&self, task: u64, (call, words): (u32, [u64; 6]), name: &str) -> (Arc<EventFormat>, Vec<u8>) {
        let format = Arc::new(shipped("raw_syscalls:sys_enter").with_strings(&[ARGUMENTS.to_owned()]).unwrap());
        let code = string_code(
            &event(&format),
            &format,
            (None, &Selection::EVERYTHING),
            KernelTypes { paths: Some(&TYPES), ..KernelTypes::default() },
        )
        .unwrap();
        let mut machine = Machine::new((8, 8));
        machine.objects = self.objects.clone();
        machine.task = task;
        machine.arguments.extend([(READ, bits_of_call("read")), (OPENAT, bits_of_call("openat"))]);
        machine.strings = [(0x7000, name.as_bytes().to_vec())].into();
        machine.open = crate::instruction::interpreter::Hash::new((8, UNREAD_BYTES));
        let record: Vec<u8> =
            [&[0, call.into()][..], &words].concat().iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(machine.run(&code, &record), 1);
        (format, machine.written.pop().unwrap())
    }
}

fn text(format: &EventFormat, record: &[u8], field: &str) -> Option<String> {
    match format.field(field).unwrap().value(record) {
        Some(Value::Str(text)) => Some(String::from_utf8(text.to_vec()).unwrap()),
        _ => None,
    }
}

/// A kernel with a file system on `/`, and another one on `/data`.
struct Tree {
    kernel: Kernel,
    root: (u64, u64),
    data: (u64, u64),
}

fn tree() -> Tree {
    let mut kernel = Kernel::default();
    let top = kernel.entry(None, "/");
    let first = kernel.mount(top, None);
    let point = kernel.entry(Some(top), "data");
    let top_of_data = kernel.entry(None, "/");
    let data = kernel.mount(top_of_data, Some((first, point)));
    Tree { kernel, root: (first, top), data: (data, top_of_data) }
}

/// Returns the path of a file descriptor of a task with these files.
fn path_of(tree: &mut Tree, files: &[(u64, u64)], descriptor: u64) -> Option<String> {
    let task = tree.kernel.task(files, tree.root, tree.root);
    let (format, record) = tree.kernel.record(task, (READ, [descriptor, 0x7000, 3, 0, 0, 0]), "no name");
    text(&format, &record, string_of_argument(0))
}

#[test]
fn a_path_goes_through_mounts_up_to_the_root() {
    let mut tree = tree();
    let user = tree.kernel.entry(Some(tree.data.1), "user");
    let file = tree.kernel.entry(Some(user), "notes.txt");
    let files = [tree.root, (tree.data.0, file), tree.data];
    let paths = [0, 1, 2, 3, u64::MAX].map(|descriptor| path_of(&mut tree, &files, descriptor));
    assert_eq!(
        paths,
        [Some("/"), Some("/data/user/notes.txt"), Some("/data"), None, None].map(|path| path.map(str::to_owned))
    );
}

#[test]
fn a_file_that_was_removed_is_named_as_procfs_names_it() {
    let mut tree = tree();
    let file = tree.kernel.entry(Some(tree.root.1), "x");
    tree.kernel.set(file, TYPES.entry_hash, 0);
    let files = [(tree.root.0, file)];
    assert_eq!(path_of(&mut tree, &files, 0).as_deref(), Some("/x (deleted)"));
}

#[test]
fn files_without_a_place_are_named_by_their_kind() {
    let kinds: [(u64, &str, Option<&str>); 6] = [
        (0x5049_5045, "", Some("pipe:[4294967295]")),
        (0x534f_434b, "TCP", Some("socket:[4294967295]")),
        (0x0904_1934, "[eventpoll]", Some("anon_inode:[eventpoll]")),
        (0x0102_1994, "memfd:x", Some("/memfd:x (deleted)")),
        (0x9584_58f6, "memfd:y", Some("/memfd:y (deleted)")),
        // Programs do not know the text for files of nsfs.
        (0x6e73_6673, "", None),
    ];
    for (magic, name, expected) in kinds {
        let mut tree = tree();
        let kernel = &mut tree.kernel;
        let top = kernel.entry(None, "/");
        let mount = kernel.mount(top, None);
        let file = kernel.entry(None, name);
        let names = kernel.object(&[(TYPES.operations_name, 1)]);
        let part = kernel.object(&[(TYPES.super_magic, magic)]);
        let inode = kernel.object(&[(TYPES.inode_number, u32::MAX.into())]);
        kernel.set(file, TYPES.entry_operations, names);
        kernel.set(file, TYPES.entry_super, part);
        kernel.set(file, TYPES.entry_inode, inode);
        assert_eq!(path_of(&mut tree, &[(mount, file)], 0).as_deref(), expected);
    }
}

#[test]
fn a_path_that_is_too_long_or_too_deep_is_unknown() {
    let mut tree = tree();
    let long = |tree: &mut Tree, name: &str, count: usize| {
        let start = tree.root;
        let folder = (0..count).fold(start.1, |folder, _| tree.kernel.entry(Some(folder), name));
        path_of(tree, &[(start.0, folder)], 0)
    };
    let name = "x".repeat(127);
    let path = format!("/{name}").repeat(7);
    assert_eq!(long(&mut tree, &name, 7), Some(path));
    // A path of 1,024 bytes leaves no byte for the NUL.
    assert_eq!(long(&mut tree, &name, 8), None);
    assert_eq!(long(&mut tree, "y", 80).map(|path| path.len()), Some(160));
    assert_eq!(long(&mut tree, "y", 120), None);
}

#[test]
fn a_name_has_the_folder_to_which_it_belongs() {
    let mut tree = tree();
    let file = tree.kernel.entry(Some(tree.data.1), "dir");
    let task = tree.kernel.task(&[(tree.data.0, file)], tree.data, tree.root);
    let folders = |descriptor: i64, name: &str| {
        let call = (OPENAT, [descriptor as u64 & 0xffff_ffff, 0x7000, 0, 0, 0, 0]);
        let (format, record) = tree.kernel.record(task, call, name);
        ["arg0_str", "arg1_str", "cwd_str", "root_str"].map(|field| text(&format, &record, field).unwrap_or_default())
    };
    assert_eq!(folders(-100, "a"), ["", "a", "/data", ""]);
    assert_eq!(folders(-100, "/a"), ["", "/a", "", "/"]);
    assert_eq!(folders(0, "a"), ["/data/dir", "a", "", ""]);
    // There is no such file descriptor.
    assert_eq!(folders(5, "a"), ["", "a", "", ""]);
}

#[test]
fn a_call_with_a_file_has_the_mount_namespace_of_its_task() {
    const NUMBER: u64 = 4_026_532_345;
    const ID: u64 = 1 << 40 | 5;
    let namespaces = |proxy: Option<u64>, call: u32| {
        let mut tree = tree();
        let namespace = tree.kernel.object(&[(16, NUMBER << 32 | 7), (32, ID)]);
        let proxy_object = tree.kernel.object(&[(16, namespace)]);
        let task = tree.kernel.task(&[], tree.root, tree.root);
        tree.kernel.set(task, 40, proxy.unwrap_or(proxy_object));
        let (format, record) = tree.kernel.record(task, (call, [0, 0x7000, 0, 0, 0, 0]), "/a");
        ["mnt_ns", "mnt_ns_id"].map(|field| match format.field(field).unwrap().value(&record) {
            Some(Value::Uint(number)) => number,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(namespaces(None, OPENAT), [NUMBER, ID]);
    // A task that exits has no namespaces, and getpid() has no file.
    assert_eq!([namespaces(Some(0), OPENAT), namespaces(None, 39)], [[0; 2]; 2]);
}
