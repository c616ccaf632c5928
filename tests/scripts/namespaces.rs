//! Scripts that show paths, on two mount namespaces in which equal paths are other files.

use std::{fs, os::unix::fs::MetadataExt};

use serde_json::Value;

use crate::harness::{
    machine::needs_paths,
    scripts::{objects, script, text},
};

/// A program that runs three others in mount namespaces of their own, each with its own file system on the folder. It prints the
/// numbers of the namespaces. All create and remove their own file `both`, the first one last. The second one leaves the file
/// `left`, and has ended when the third one, which may get the same number, creates and removes another one. The program
/// itself removes the file `one`, which is older than the program. The first one has created another file of this name.
const NAMESPACES: &str = r#"
import os, subprocess, sys
folder = sys.argv[1]
COMMON = """
import os
folder = os.environ["FOLDER"] + "/"
def create(name, flags=os.O_CREAT | os.O_EXCL):
    os.close(os.open(folder + name, flags))
def say():
    print(os.stat("/proc/self/ns/mnt").st_ino, flush=True)
"""
def start(program):
    shell = 'mount -t tmpfs none "$FOLDER" && exec python3 -c "$PROGRAM"'
    names = os.environ | {"FOLDER": folder, "PROGRAM": COMMON + program}
    pipe = subprocess.PIPE
    return subprocess.Popen(["unshare", "-m", "sh", "-c", shell], stdin=pipe, stdout=pipe, text=True, env=names)
first = start("create('both'); create('one'); say(); input(); os.unlink(folder + 'both')")
numbers = [first.stdout.readline()]
numbers += start("create('both'); os.unlink(folder + 'both'); create('left'); say()").communicate()[:1]
numbers += start("create('left', os.O_CREAT); os.unlink(folder + 'left'); say()").communicate()[:1]
first.communicate("\n")
os.unlink(folder + "/one")
os.close(os.open(folder + "/own", os.O_CREAT | os.O_EXCL))
os.unlink(folder + "/own")
print("\nnamespaces", *map(str.strip, numbers), flush=True)
"#;

/// Returns the numbers of the namespaces that the program has printed.
fn namespaces(out: &str) -> [u64; 3] {
    let line = out.lines().find_map(|line| line.strip_prefix("namespaces ")).unwrap_or_else(|| panic!("{out}"));
    let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

/// Returns the name, the namespace, and whether the creator is the remover, for each file that filelife.py shows. Returns also
/// how many removals it counts whose path another namespace created.
fn removals(out: &str) -> (Vec<(String, u64, bool)>, usize) {
    let lines: String = out.lines().filter(|line| line.starts_with('{')).map(|line| format!("{line}\n")).collect();
    let objects = objects(&lines);
    let removal = |object: &Value| {
        let name = object["path"].as_str()?.rsplit('/').next()?.to_owned();
        let creator = object["created_by"].as_str()?.trim_end_matches('?');
        Some((name, object["mnt_ns"].as_u64()?, object["removed_by"] == creator))
    };
    let note = "removals that are not shown, whose path another mount namespace (container) created: ";
    let count = objects.iter().find_map(|object| object["note"].as_str()?.strip_prefix(note)?.parse().ok());
    (objects.iter().filter_map(removal).collect(), count.unwrap_or(0))
}

#[test]
fn filelife_does_not_mix_equal_paths_of_mount_namespaces() {
    needs_paths();
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (path, data) = (folder.path().display().to_string(), other.path().join("perf.data").display().to_string());
    fs::write(folder.path().join("one"), "").unwrap();
    let run = |options: &[&str]| text(script("filelife.py").args(["--name", &path]).args(options).output().unwrap());
    let out = run(&["--json", "--record", &data, "--exec", "python3", "-c", NAMESPACES, &path]);
    let [first, second, third] = namespaces(&out);
    let own = fs::metadata("/proc/self/ns/mnt").unwrap().ino();
    let files = [("both", second), ("left", third), ("both", first), ("own", own)];
    let expected = (files.map(|(name, namespace)| (name.to_owned(), namespace, true)).to_vec(), 1);
    assert_eq!(removals(&out), expected, "{out}");
    assert_eq!(removals(&run(&["--json", "--input", &data])), expected);
    let shown = run(&["--input", &data]);
    let is_marked = |(name, namespace)| {
        let end = format!("{path}/{name} (mnt {namespace})");
        shown.lines().any(|line| line.ends_with(&end))
    };
    assert_eq!(files.map(is_marked), [true, true, true, false], "{shown}");
}
