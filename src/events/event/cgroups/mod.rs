//! The names of cgroups by their ids, from PERF_RECORD_CGROUP and from the file system, and the cgroup of each task.

mod memberships;
mod selected;

use std::{borrow::Cow, sync::Arc};

use rustc_hash::{FxHashMap, FxHashSet};

pub use self::{memberships::Memberships, selected::SelectedCgroups};
use super::{Context, Sample, UNKNOWN_COMM};

/// The maximum memory for paths, in bytes. There is a limit because a recording may name any number of cgroups.
const PATHS: usize = 32 << 20;
/// The memory of a stored path in addition to its own bytes, in bytes.
const ENTRY: usize = 64;
/// The maximum number of ids without a path that are remembered.
const UNNAMED: usize = 1 << 16;

/// The cgroups of a run.
#[derive(Debug, Default)]
pub struct Cgroups {
    /// The path of each cgroup, by its id. The kernel never uses an id again.
    paths: FxHashMap<u64, Arc<[u8]>>,
    /// The memory that the paths take, in bytes.
    bytes: usize,
    /// The ids for which no path was found.
    unnamed: FxHashSet<u64>,
    /// The cgroups of tasks; `None` if they are not followed.
    pub tasks: Option<Memberships>,
}

impl Cgroups {
    /// Notes the path of a cgroup, from the root of its hierarchy. If there is no memory for it, the cgroup has no path.
    pub fn named(&mut self, id: u64, path: &[u8]) {
        if self.bytes + path.len() + ENTRY <= PATHS {
            self.bytes += path.len() + ENTRY;
            let former = self.paths.insert(id, path.into());
            self.bytes -= former.map_or(0, |path| path.len() + ENTRY);
        }
    }

    /// Returns the path of a cgroup, if it is known. If the id is looked up for the first time and is unknown, calls
    /// `find`, which returns the ids and paths of all cgroups.
    pub fn path(&mut self, id: u64, find: impl FnOnce() -> Vec<(u64, Vec<u8>)>) -> Option<Arc<[u8]>> {
        if !self.knows(id) {
            find().iter().for_each(|(id, path)| self.named(*id, path));
            if self.unnamed.len() >= UNNAMED {
                self.unnamed.clear();
            }
            self.unnamed.insert(id);
        }
        self.paths.get(&id).cloned()
    }

    /// Returns whether the path of a cgroup is known, or was looked up without success.
    #[inline]
    pub fn knows(&self, id: u64) -> bool {
        self.paths.contains_key(&id) || self.unnamed.contains(&id)
    }

    /// Follows the cgroups of tasks from now on.
    pub fn follow_tasks(&mut self) {
        self.tasks.get_or_insert_default();
    }

    /// Returns the elements of `names` that match no known cgroup.
    pub fn without_match(&self, names: &[String]) -> Vec<String> {
        let has = |name: &String| {
            let selected = SelectedCgroups::new([name.clone()]);
            self.paths.values().any(|path| selected.has(path))
        };
        names.iter().filter(|name| !has(name)).cloned().collect()
    }

    /// Returns whether this id is known to be the id of this path. In an event, the id and the path may be those of a
    /// cgroup in another hierarchy, in which ids are different.
    pub fn has(&self, id: u64, path: &[u8]) -> bool {
        self.paths.get(&id).is_some_and(|known| **known == *path)
    }
}

/// Returns the text for a cgroup: its path, or its id if its path is not known. The id 0 means that the task's cgroup is not
/// known.
pub fn shown_cgroup(id: u64, path: Option<&[u8]>) -> Cow<'_, [u8]> {
    match path {
        Some(path) => path.into(),
        None if id == 0 => UNKNOWN_COMM.into(),
        None => format!("<{id}>").into_bytes().into(),
    }
}

/// Returns the text for the cgroup of a sample; `None` if the samples do not have it.
pub fn cgroup_text(sample: &Sample<'_>, context: &Context) -> Option<Vec<u8>> {
    let id = sample.cgroup()?;
    Some(shown_cgroup(id, context.cgroup_path(id).as_deref()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_without_a_name_is_looked_up_once_and_shown_as_a_number() {
        let mut cgroups = Cgroups::default();
        cgroups.named(1, b"/");
        let found = || vec![(2, b"/a".to_vec())];
        assert_eq!(cgroups.path(2, found).as_deref(), Some(&b"/a"[..]));
        assert_eq!(cgroups.path(3, Vec::new), None);
        assert_eq!(cgroups.path(3, || panic!("looked up again")), None);
        assert_eq!(cgroups.without_match(&["a".to_owned(), "b".to_owned()]), ["b"]);
        // The record with the path comes after the first lookup.
        cgroups.named(3, b"/b");
        assert_eq!(cgroups.path(3, Vec::new).as_deref(), Some(&b"/b"[..]));
        assert_eq!(&*shown_cgroup(7, None), b"<7>");
        assert_eq!(&*shown_cgroup(0, None), b"<...>");
    }

    #[test]
    fn the_memory_for_names_is_limited() {
        let mut cgroups = Cgroups::default();
        let path = vec![b'x'; 60 << 10];
        for id in 0..1000 {
            cgroups.named(id, &path);
            cgroups.named(id, &path);
        }
        assert!(cgroups.paths.len() < 600 && cgroups.bytes <= PATHS, "{}", cgroups.bytes);
        (0..2 * UNNAMED as u64).for_each(|id| _ = cgroups.path(1000 + id, Vec::new));
        assert!(cgroups.unnamed.len() <= UNNAMED);
    }
}
