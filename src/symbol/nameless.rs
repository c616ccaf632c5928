//! Frames that have no names because a recording's binaries are not here, counted for who wonders why. Opens nothing.

use std::fmt::Write;

use rustc_hash::FxHashMap;

use super::Reason;

/// How many frames of which files have no names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nameless {
    /// Frames by file, where the recording does not say which build of it it was.
    no_build_id: FxHashMap<String, u64>,
    /// The same where it does, and that build is not here.
    not_here: FxHashMap<String, u64>,
}

impl Nameless {
    /// A frame has no name, for this reason.
    pub fn add(&mut self, reason: &Reason) {
        match reason {
            Reason::NoBuildId { path } => count(&mut self.no_build_id, path, 1),
            Reason::NotHere { path, .. } => count(&mut self.not_here, path, 1),
            _ => {}
        }
    }

    /// For another process, which adds it to what it has.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (kind, files) in [('?', &self.no_build_id), ('-', &self.not_here)] {
            for (path, frames) in files {
                // Writing to a String cannot fail. No path has a NUL.
                let _ = write!(text, "{kind} {frames} {path}\0");
            }
        }
        text
    }

    /// Adds what another process has counted.
    pub fn add_text(&mut self, text: &str) {
        for entry in text.split_terminator('\0') {
            let mut words = entry.splitn(3, ' ');
            let (Some(kind), Some(Ok(frames)), Some(path)) = (words.next(), words.next().map(str::parse), words.next())
            else {
                continue;
            };
            count(if kind == "?" { &mut self.no_build_id } else { &mut self.not_here }, path, frames);
        }
    }

    /// What is to be said at the end, with the way out.
    pub fn line(&self) -> Option<String> {
        let frames: u64 = self.no_build_id.values().chain(self.not_here.values()).sum();
        let mut reasons = Vec::new();
        if !self.no_build_id.is_empty() {
            let files = most(&self.no_build_id);
            let advice = match self.no_build_id.keys().any(|path| is_a_file(path)) {
                true => "; `perf record` tells it with --buildid-all or --buildid-mmap",
                false => "",
            };
            reasons.push(format!("the recording has no build id of {files}{advice}"));
        }
        if !self.not_here.is_empty() {
            reasons.push(format!("the build that was recorded is not here of {}", most(&self.not_here)));
        }
        (frames != 0).then(|| format!("{frames} user frames have no names: {}", reasons.join("; ")))
    }
}

fn count(files: &mut FxHashMap<String, u64>, path: &str, new: u64) {
    match files.get_mut(path) {
        Some(frames) => *frames += new,
        None => drop(files.insert(path.to_owned(), new)),
    }
}

/// Whether a mapping's name is that of a file which could be there: not `[vdso]`, nor memory, nor what was removed.
fn is_a_file(path: &str) -> bool {
    path.starts_with('/') && !path.starts_with("/memfd:") && !path.ends_with(" (deleted)")
}

/// The files that have the most of these frames.
fn most(files: &FxHashMap<String, u64>) -> String {
    const NAMED: usize = 3;
    let mut sorted: Vec<(&String, &u64)> = files.iter().collect();
    sorted.sort_by_key(|&(path, frames)| (std::cmp::Reverse(frames), path));
    let named: Vec<&str> = sorted.iter().take(NAMED).map(|(path, _)| path.as_str()).collect();
    let mut text = named.join(", ");
    if files.len() > NAMED {
        // Writing to a String cannot fail.
        let _ = write!(text, ", ... ({} more)", files.len() - NAMED);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_a_build_id_are_named_with_the_way_out() {
        let mut nameless = Nameless::default();
        nameless.add(&Reason::NotMapped);
        assert_eq!(nameless.line(), None);
        for (path, frames) in [("/a", 1), ("/b", 3), ("/c", 2), ("/d", 1), ("/e", 1)] {
            (0..frames).for_each(|_| nameless.add(&Reason::NoBuildId { path: path.into() }));
        }
        let said = "8 user frames have no names: the recording has no build id of /b, /c, /a, ... (2 more); `perf \
                    record` tells it with --buildid-all or --buildid-mmap";
        assert_eq!(nameless.line().as_deref(), Some(said));
        nameless.add(&Reason::NotHere { path: "/f".into(), build_id: "12".into() });
        let both = format!("9{}; the build that was recorded is not here of /f", &said[1..]);
        assert_eq!(nameless.line(), Some(both));
        let mut added = Nameless::default();
        added.add_text(&nameless.text());
        assert_eq!(added, nameless);
        added.add_text(&nameless.text());
        assert!(added.line().is_some_and(|line| line.starts_with("18 ")));
    }

    #[test]
    fn an_option_of_perfs_was_recommended_for_what_is_no_file() {
        let mut nameless = Nameless::default();
        for path in ["[vdso]", "/memfd:x (deleted)", "/gone (deleted)"] {
            nameless.add(&Reason::NoBuildId { path: path.into() });
        }
        let said =
            "3 user frames have no names: the recording has no build id of /gone (deleted), /memfd:x (deleted), [vdso]";
        assert_eq!(nameless.line().as_deref(), Some(said));
    }
}
