//! Counts the frames without a name whose recorded binaries were not found on this machine. A message shows the counts
//! to the user.

use std::fmt::Write;

use rustc_hash::FxHashMap;

use super::Reason;

/// The number of frames without a name, for each file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnnamedFrames {
    /// By path: the number of frames, for files for which the recording contains no build id.
    no_build_id: FxHashMap<String, u64>,
    /// By path: the number of frames, for files whose recorded build id no file on this machine has.
    missing_file: FxHashMap<String, u64>,
}

impl UnnamedFrames {
    /// Counts a frame without a name, if the reason is a missing build id or a missing file.
    pub fn add(&mut self, reason: &Reason) {
        match reason {
            Reason::NoBuildId { path } => count(&mut self.no_build_id, path, 1),
            Reason::BuildNotFound { path, .. } => count(&mut self.missing_file, path, 1),
            _ => {}
        }
    }

    /// Returns the counts as text, so that another process can add them with [`UnnamedFrames::add_text`].
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (kind, files) in [('?', &self.no_build_id), ('-', &self.missing_file)] {
            for (path, frames) in files {
                // Writing to a String cannot fail. No path contains a NUL.
                let _ = write!(text, "{kind} {frames} {path}\0");
            }
        }
        text
    }

    /// Adds the counts that [`UnnamedFrames::text`] returned in another process.
    pub fn add_text(&mut self, text: &str) {
        for entry in text.split_terminator('\0') {
            let mut words = entry.splitn(3, ' ');
            let (Some(kind), Some(Ok(frames)), Some(path)) = (words.next(), words.next().map(str::parse), words.next())
            else {
                continue;
            };
            count(if kind == "?" { &mut self.no_build_id } else { &mut self.missing_file }, path, frames);
        }
    }

    /// Returns the message for the end of the run, with advice; `None` if no frames were counted.
    pub fn summary(&self) -> Option<String> {
        let frames: u64 = self.no_build_id.values().chain(self.missing_file.values()).sum();
        let mut reasons = Vec::new();
        if !self.no_build_id.is_empty() {
            let files = most_frequent_files(&self.no_build_id);
            let advice = match self.no_build_id.keys().any(|path| is_a_file(path)) {
                true => "; to store it, use --buildid-mmap with `perf record`",
                false => "",
            };
            reasons.push(format!("the recording has no build id for {files}{advice}"));
        }
        if !self.missing_file.is_empty() {
            reasons.push(format!(
                "this machine does not have the recorded build of {}; add a copy of the file with `perf buildid-cache -a FILE`, \
                 or pack the files of the recorded machine with `perf archive`",
                most_frequent_files(&self.missing_file)
            ));
        }
        (frames != 0).then(|| format!("user frames have no names (count: {frames}): {}", reasons.join("; ")))
    }
}

fn count(files: &mut FxHashMap<String, u64>, path: &str, new: u64) {
    match files.get_mut(path) {
        Some(frames) => *frames = frames.saturating_add(new),
        None => drop(files.insert(path.to_owned(), new)),
    }
}

/// Returns whether the path of a mapping may name a file on this machine. The vdso, anonymous memory and removed files
/// have other paths.
fn is_a_file(path: &str) -> bool {
    path.starts_with('/') && !path.starts_with("/memfd:") && !path.ends_with(" (deleted)")
}

/// Returns the paths of the files with the highest counts, and the number of other files.
pub fn most_frequent_files(files: &FxHashMap<String, u64>) -> String {
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
        let mut nameless = UnnamedFrames::default();
        nameless.add(&Reason::NotMapped);
        assert_eq!(nameless.summary(), None);
        for (path, frames) in [("/a", 1), ("/b", 3), ("/c", 2), ("/d", 1), ("/e", 1)] {
            (0..frames).for_each(|_| nameless.add(&Reason::NoBuildId { path: path.into() }));
        }
        let said = "user frames have no names (count: 8): the recording has no build id for /b, /c, /a, ... (2 more); to \
                    store it, use --buildid-mmap with `perf record`";
        assert_eq!(nameless.summary().as_deref(), Some(said));
        nameless.add(&Reason::BuildNotFound { path: "/f".into(), build_id: "12".into() });
        let both = format!(
            "{}; this machine does not have the recorded build of /f; add a copy of the file with `perf buildid-cache -a FILE`, \
             or pack the files of the recorded machine with `perf archive`",
            said.replace("8)", "9)")
        );
        assert_eq!(nameless.summary(), Some(both));
        let mut added = UnnamedFrames::default();
        added.add_text(&nameless.text());
        assert_eq!(added, nameless);
        added.add_text(&nameless.text());
        assert!(added.summary().is_some_and(|line| line.contains("(count: 18)")));
    }

    #[test]
    fn mappings_without_a_file_get_no_advice_about_build_ids() {
        let mut nameless = UnnamedFrames::default();
        for path in ["[vdso]", "/memfd:x (deleted)", "/gone (deleted)"] {
            nameless.add(&Reason::NoBuildId { path: path.into() });
        }
        let said = "user frames have no names (count: 3): the recording has no build id for /gone (deleted), /memfd:x (deleted), [vdso]";
        assert_eq!(nameless.summary().as_deref(), Some(said));
    }
}
