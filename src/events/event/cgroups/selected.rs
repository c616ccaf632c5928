//! The cgroups that the user selected.

use std::sync::Arc;

use perf_prof_format::spec::glob_matches;
use rustc_hash::FxHashMap;

/// The names of the selected cgroups. Cgroups below a selected one are selected too, as in perf (`perf_cgroup_match()` in
/// kernel/events/core.c).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectedCgroups {
    /// Paths from the root of the hierarchy. Each part may contain wildcards: `/system.slice/*.service`.
    names: Vec<String>,
    /// Whether a cgroup is selected, by its id. Contains only cgroups whose path is known.
    known: FxHashMap<u64, bool>,
}

impl SelectedCgroups {
    /// Selects the cgroups with these paths. The first `/` may be left out.
    pub fn new(names: impl IntoIterator<Item = String>) -> SelectedCgroups {
        let names = names.into_iter().map(|name| format!("/{}", name.trim_matches('/'))).collect();
        SelectedCgroups { names, known: FxHashMap::default() }
    }

    /// Returns whether the cgroup with this id is selected. `path` returns the cgroup's path; `None` if it is unknown.
    pub fn contains(&mut self, id: u64, path: impl FnOnce() -> Option<Arc<[u8]>>) -> bool {
        if let Some(&known) = self.known.get(&id) {
            return known;
        }
        let Some(path) = path() else { return false };
        let is_selected = self.has(&path);
        self.known.insert(id, is_selected);
        is_selected
    }

    /// Returns whether the cgroup with this path is selected.
    pub fn has(&self, path: &[u8]) -> bool {
        self.names.iter().any(|name| is_in(path, name))
    }
}

/// Returns whether `path` is the path of the cgroup `name`, or of a cgroup below it.
fn is_in(path: &[u8], name: &str) -> bool {
    let path = String::from_utf8_lossy(path);
    if name == "/" {
        return true;
    }
    let mut parts = path.split('/');
    name.split('/').all(|wanted| parts.next().is_some_and(|part| part == wanted || glob_matches(wanted, part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_selected_with_all_cgroups_below_it() {
        let names = ["a.slice/x", "/pods/*/app", "/b/"].map(str::to_owned);
        let mut selected = SelectedCgroups::new(names);
        let mut next = 0;
        let mut has = |path: &str| {
            next += 1;
            selected.contains(next, || Some(path.as_bytes().into()))
        };
        assert!(
            ["/a.slice/x", "/a.slice/x/y/z", "/pods/one/app", "/pods/two/app/child", "/b"].iter().all(|path| has(path))
        );
        assert!(!["/", "/a.slice", "/a.slice/xy", "/pods/one", "/pods/one/other", "/c/b"].iter().any(|path| has(path)));
        assert!(SelectedCgroups::new(["/".to_owned()]).contains(1, || Some(b"/any/thing"[..].into())));
    }

    /// The path of a cgroup may become known after the first sample in the cgroup.
    #[test]
    fn a_cgroup_without_a_name_is_not_selected_until_it_has_one() {
        let mut selected = SelectedCgroups::new(["a".to_owned()]);
        assert!(!selected.contains(1, || None));
        assert!(selected.contains(1, || Some(b"/a"[..].into())));
    }
}
