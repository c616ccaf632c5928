//! The names of cgroups by id, from PERF_RECORD_CGROUP and the file system; and the cgroup of each task.

mod memberships;
mod selected;

use std::{borrow::Cow, sync::Arc};

use rustc_hash::{FxHashMap, FxHashSet};

pub use self::{memberships::Memberships, selected::SelectedCgroups};
use super::{Context, Sample, UNKNOWN_COMM};

/// The maximum memory for paths, in bytes. A recording may name any number of cgroups.
const PATHS: usize = 32 << 20;
/// The memory of a stored path beyond its own bytes.
const ENTRY: usize = 64;
/// The maximum number of remembered ids without a path.
const UNNAMED: usize = 1 << 16;

/// The cgroups that a run knows.
#[derive(Debug, Default)]
pub struct Cgroups {
    /// The path of each cgroup, by id. The kernel never reuses an id.
    paths: FxHashMap<u64, Arc<[u8]>>,
    /// The memory that the paths take, in bytes.
    bytes: usize,
    /// The ids for which no path was found.
    unnamed: FxHashSet<u64>,
    /// The cgroups of tasks; `None` if the run does not follow them.
    pub tasks: Option<Memberships>,
}

impl Cgroups {
    /// Notes the path of a cgroup from the root of its hierarchy. Ignores the path if it does not fit into the memory for
    /// paths.
    pub fn named(&mut self, id: u64, path: &[u8]) {
        if self.bytes + path.len() + ENTRY <= PATHS {
            self.bytes += path.len() + ENTRY;
            let former = self.paths.insert(id, path.into());
            self.bytes -= former.map_or(0, |path| path.len() + ENTRY);
        }
    }

    /// Returns the path of a cgroup; `None` if it is unknown. At the first lookup of an unknown id, calls `find`, which
    /// returns the ids and paths of all cgroups.
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

    /// Returns whether the path of a cgroup is known, or was looked up and not found.
    #[inline]
    pub fn knows(&self, id: u64) -> bool {
        self.paths.contains_key(&id) || self.unnamed.contains(&id)
    }

    /// Starts to follow the cgroups of tasks.
    pub fn follow_tasks(&mut self) {
        self.tasks.get_or_insert_default();
    }

    /// Returns those of `names` that select no known cgroup.
    pub fn without_match(&self, names: &[String]) -> Vec<String> {
        let has = |name: &String| {
            let selected = SelectedCgroups::new([name.clone()]);
            self.paths.values().any(|path| selected.has(path))
        };
        names.iter().filter(|name| !has(name)).cloned().collect()
    }

    /// Returns whether the cgroup with this id is known to have this path. An event may name a cgroup of another hierarchy,
    /// where the same id belongs to another path.
    pub fn has(&self, id: u64, path: &[u8]) -> bool {
        self.paths.get(&id).is_some_and(|known| **known == *path)
    }
}

/// Returns the text that is shown for a cgroup: its path, or its id if the path is unknown. The id 0 means that the cgroup
/// of a task is unknown.
pub fn shown_cgroup(id: u64, path: Option<&[u8]>) -> Cow<'_, [u8]> {
    match path {
        Some(path) => path.into(),
        None if id == 0 => UNKNOWN_COMM.into(),
        None => format!("<{id}>").into_bytes().into(),
    }
}

/// Returns the text that is shown for the cgroup of a sample; `None` if the samples have no cgroup.
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
        // The record with the path comes after the first lookup of the id.
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
