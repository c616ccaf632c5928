//! Finds cgroups by name, by id and by task, in the hierarchy that perf events can be attached to. Opens no events.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// Why a cgroup was not found.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// No cgroup hierarchy with the controller perf_event is mounted.
    #[error(
        "no cgroup hierarchy with perf_event is mounted; mount one with `mount -t cgroup2 none /sys/fs/cgroup`, or for \
         cgroup v1 `mount -t cgroup -o perf_event none /sys/fs/cgroup/perf_event`"
    )]
    NoHierarchy,
    /// The hierarchy contains no such directory.
    #[error("there is no cgroup `{name}` in {}; give the path of a folder in this hierarchy", .hierarchy.display())]
    NotFound {
        /// The name as the user wrote it.
        name: String,
        /// The folder in which the hierarchy is mounted.
        hierarchy: PathBuf,
    },
    /// Perf events cannot be attached to the directory, because it is outside the hierarchy.
    #[error(
        "the folder `{name}` is outside {}, the cgroup hierarchy with perf_event; give the path of a folder in it",
        .hierarchy.display()
    )]
    WrongHierarchy {
        /// The name as the user wrote it.
        name: String,
        /// The folder in which the hierarchy is mounted.
        hierarchy: PathBuf,
    },
    /// The name is not a valid pattern.
    #[error("the cgroup pattern `{name}` is not valid: {reason}")]
    Pattern {
        /// The name as the user wrote it.
        name: String,
        /// The error in the pattern.
        reason: String,
    },
}

/// The folder in which the hierarchy with perf_event is mounted. Empty until [`hierarchy`] finds the folder.
static HIERARCHY: OnceLock<PathBuf> = OnceLock::new();

fn hierarchy() -> Option<&'static Path> {
    if HIERARCHY.get().is_none() {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let _ = HIERARCHY.set(perf_event_hierarchy(&mounts)?);
    }
    HIERARCHY.get().map(PathBuf::as_path)
}

/// Returns the directories of the cgroups with this name. `name` is a path in the file system, or a path in the
/// hierarchy as in /proc/PID/cgroup. Both kinds of paths may contain the wildcards `*`, `?` and `[`.
pub fn resolve(name: &str) -> Result<Vec<PathBuf>, CgroupError> {
    resolve_in(hierarchy().ok_or(CgroupError::NoHierarchy)?, name)
}

/// Returns the path of a cgroup in its hierarchy, as in /proc/PID/cgroup. `directory` is a path that [`resolve`]
/// returned.
pub fn path_in_hierarchy(directory: &Path) -> PathBuf {
    let below = hierarchy().and_then(|root| directory.strip_prefix(root).ok()).unwrap_or(directory);
    Path::new("/").join(below)
}

/// Returns the id and the path of every cgroup in the hierarchy with perf_event. Paths start with `/` and are relative
/// to the hierarchy's root. The root comes first.
pub fn all() -> Vec<(u64, PathBuf)> {
    hierarchy().map(all_in).unwrap_or_default()
}

/// Returns the id of the cgroup that the thread `tid` is in now.
pub fn of_task(tid: u32) -> Option<u64> {
    let lines = fs::read_to_string(format!("/proc/{tid}/cgroup")).ok()?;
    let (_, path) = of_perf_event(&lines)?;
    fs::metadata(hierarchy()?.join(path.trim_start_matches('/'))).ok().map(|folder| folder.ino())
}

/// Returns the id of the hierarchy with perf_event. Tracepoints of cgroups contain it as `dst_root`.
pub fn hierarchy_id() -> Option<i64> {
    let lines = fs::read_to_string("/proc/self/cgroup").ok()?;
    of_perf_event(&lines).map(|(number, _)| number)
}

/// Returns the id of the hierarchy with perf_event, and the path of the task's cgroup in this hierarchy. `lines` is the
/// text of /proc/PID/cgroup. It contains lines like `4:memory:/a` for v1 hierarchies and `0::/b` for the v2 hierarchy.
fn of_perf_event(lines: &str) -> Option<(i64, &str)> {
    let all = || {
        lines.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            Some((parts.next()?.parse().ok()?, parts.next()?, parts.next()?))
        })
    };
    let first =
        all().find(|(_, controllers, _): &(i64, &str, &str)| controllers.split(',').any(|of| of == "perf_event"));
    first.or_else(|| all().find(|(number, ..)| *number == 0)).map(|(number, _, path)| (number, path))
}

fn all_in(root: &Path) -> Vec<(u64, PathBuf)> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        // A cgroup that was removed during the search is skipped, because it gets no more samples. The id of a cgroup
        // is the inode number of its folder (`kernfs_ino()`) if inode numbers have 64 bits.
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
        // A path with symbolic links or `..` may lead out of the hierarchy, so its canonical form is checked.
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

/// Returns the folder in which the hierarchy with perf_event is mounted. `mounts` is the text of /proc/self/mounts. If
/// a v1 hierarchy with the controller perf_event is mounted, returns its folder. Otherwise returns the folder of the v2
/// hierarchy, which always has this controller (`perf_event_cgrp_subsys.implicit_on_dfl`).
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

/// Replaces each `\040` with a space. The mount table writes spaces in this form.
pub(super) fn unescape(place: &str) -> PathBuf {
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
    fn a_task_is_in_a_cgroup_of_each_hierarchy() {
        let lines = "4:memory:/m\n3:cpuset,perf_event:/p:q\n0::/u\n";
        assert_eq!(of_perf_event(lines), Some((3, "/p:q")));
        assert_eq!(of_perf_event("4:memory:/m\n0::/u\n"), Some((0, "/u")));
        assert_eq!(of_perf_event("4:memory:/m\nx"), None);
        if hierarchy_id().is_some() && hierarchy().is_some() {
            let own = of_task(std::process::id());
            assert!(own.is_some_and(|own| all().iter().any(|(id, _)| *id == own)), "{own:?}");
        }
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
