//! From what a user calls a cgroup to its directory in the hierarchy that perf events can be attached to.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Why a cgroup was not found.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// Nothing to attach to is mounted.
    #[error(
        "no cgroup hierarchy with perf_event is mounted; mount one with `mount -t cgroup2 none /sys/fs/cgroup`, or for \
         cgroup v1 `mount -t cgroup -o perf_event none /sys/fs/cgroup/perf_event`"
    )]
    NoHierarchy,
    /// No such directory.
    #[error("there is no cgroup `{name}` in {}", .hierarchy.display())]
    NotFound {
        /// As the user wrote it.
        name: String,
        /// The root of the hierarchy.
        hierarchy: PathBuf,
    },
    /// A directory that perf events cannot be attached to.
    #[error("`{name}` is outside {}, the cgroup hierarchy with perf_event", .hierarchy.display())]
    WrongHierarchy {
        /// As the user wrote it.
        name: String,
        /// The root of the hierarchy.
        hierarchy: PathBuf,
    },
    /// The pattern is none.
    #[error("`{name}`: {reason}")]
    Pattern {
        /// As the user wrote it.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// The directories of the cgroups that `name` stands for: a path in the file system, a path in the hierarchy (as
/// /proc/PID/cgroup shows it), either of them with `*`, `?` and `[`.
pub fn resolve(name: &str) -> Result<Vec<PathBuf>, CgroupError> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let hierarchy = perf_event_hierarchy(&mounts).ok_or(CgroupError::NoHierarchy)?;
    resolve_in(&hierarchy, name)
}

/// All cgroups of that hierarchy, the root first: the id of each, and its path from the root.
pub fn all() -> Vec<(u64, PathBuf)> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    perf_event_hierarchy(&mounts).map(|root| all_in(&root)).unwrap_or_default()
}

fn all_in(root: &Path) -> Vec<(u64, PathBuf)> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        // What is gone meanwhile has no more samples. The number of a cgroup's folder is its id (`kernfs_ino()`), where
        // numbers of files have 64 bits.
        let (Ok(of_folder), Ok(entries)) = (fs::metadata(&folder), fs::read_dir(&folder)) else { continue };
        let below = folder.strip_prefix(root).unwrap_or(&folder);
        found.push((of_folder.ino(), Path::new("/").join(below)));
        let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        open.extend(folders.map(|entry| entry.path()));
    }
    found
}

fn resolve_in(hierarchy: &Path, name: &str) -> Result<Vec<PathBuf>, CgroupError> {
    let below = hierarchy.join(name.trim_start_matches('/'));
    let mut outside = false;
    for pattern in [Path::new(name), &below] {
        if !pattern.is_absolute() {
            continue;
        }
        let paths = glob::glob(&pattern.to_string_lossy())
            .map_err(|error| CgroupError::Pattern { name: name.to_owned(), reason: error.to_string() })?;
        // A path with links or `..` may lead elsewhere; its real place decides.
        let directories = paths.flatten().filter(|path| path.is_dir()).filter_map(|path| path.canonicalize().ok());
        let (inside, others): (Vec<_>, Vec<_>) = directories.partition(|path| path.starts_with(hierarchy));
        if !inside.is_empty() {
            return Ok(inside);
        }
        outside |= pattern != Path::new("/") && !others.is_empty();
    }
    let (name, hierarchy) = (name.to_owned(), hierarchy.to_owned());
    Err(if outside {
        CgroupError::WrongHierarchy { name, hierarchy }
    } else {
        CgroupError::NotFound { name, hierarchy }
    })
}

/// Where the hierarchy with perf_event is mounted, by the text of /proc/self/mounts. The controller is in the v1
/// hierarchy that was mounted with it, else in v2, where it is always on (`perf_event_cgrp_subsys.implicit_on_dfl`).
fn perf_event_hierarchy(mounts: &str) -> Option<PathBuf> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?, words.next()?))
    });
    let mut second = None;
    for (place, kind, options) in mounts {
        match kind {
            "cgroup" if options.split(',').any(|option| option == "perf_event") => return Some(unescape(place)),
            "cgroup2" if second.is_none() => second = Some(unescape(place)),
            _ => {}
        }
    }
    second
}

/// Blanks stand as `\040` in the mount table.
fn unescape(place: &str) -> PathBuf {
    place.replace("\\040", " ").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_with_perf_event() {
        let v2 = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        let v1 = "cgroup /sys/fs/cgroup/perf_event cgroup rw,relatime,perf_event 0 0\n";
        let other = "cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n";
        let at = |text: &str| perf_event_hierarchy(text).map(|path| path.display().to_string());
        assert_eq!(at(&format!("{other}{v2}")).unwrap(), "/sys/fs/cgroup/unified");
        assert_eq!(at(&format!("{v2}{other}{v1}")).unwrap(), "/sys/fs/cgroup/perf_event");
        assert_eq!(at(other), None);
    }

    #[test]
    fn names_paths_and_patterns() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let hierarchy = root.join("cgroup");
        for group in ["cgroup/a.slice/x", "cgroup/a.slice/y", "other/z"] {
            fs::create_dir_all(root.join(group)).unwrap();
        }
        let found = |name: &str| resolve_in(&hierarchy, name).map(|found| found.len());
        let mut all: Vec<String> = all_in(&hierarchy).iter().map(|(_, path)| path.display().to_string()).collect();
        all.sort();
        assert_eq!(all, ["/", "/a.slice", "/a.slice/x", "/a.slice/y"]);
        assert_eq!(found("a.slice").unwrap(), 1);
        assert_eq!(found("/a.slice/x").unwrap(), 1);
        assert_eq!(found("a.slice/*").unwrap(), 2);
        assert_eq!(found("/").unwrap(), 1);
        assert_eq!(found(hierarchy.join("a.slice/[xy]").to_str().unwrap()).unwrap(), 2);
        assert!(matches!(found("nothing"), Err(CgroupError::NotFound { .. })));
        assert!(matches!(found("a["), Err(CgroupError::Pattern { .. })));
        let outside = root.join("other/z");
        assert!(matches!(found(outside.to_str().unwrap()), Err(CgroupError::WrongHierarchy { .. })));
    }
}
