//! The folder of the dumps, and the names of the files in it.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use chrono::{DateTime, Local};

/// The length of the date and the time in the name of a file, such as `20261126-090507`.
const SECOND: usize = 15;
/// The maximum length of the reason in a file name, in characters.
const LONGEST_REASON: usize = 64;

/// The folder of the dumps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpFolder(PathBuf);

impl DumpFolder {
    /// Returns the folder for `output`, the path that the user gave: the folder that contains it if it has the name of a
    /// recording (`perf.data`), and otherwise this folder itself, which need not exist.
    pub fn of_output(output: &Path) -> DumpFolder {
        let is_folder = output.as_os_str().as_encoded_bytes().ends_with(b"/") || output.is_dir();
        let is_recording = output.extension().is_some_and(|end| end == "data");
        let folder = if is_folder || !is_recording { output } else { output.parent().unwrap_or(Path::new("")) };
        DumpFolder(if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() })
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Creates the folder if it does not exist. The folder above it has to exist.
    pub fn create(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            created => created,
        }
    }

    /// Returns the path of a new dump. Its name consists of the local time and the reason.
    pub fn new_path(&self, now: DateTime<Local>, reason: &str) -> PathBuf {
        let start = format!("{}-{}", now.format("%Y%m%d-%H%M%S"), file_name_of(reason));
        let path = |end: &str| self.0.join(format!("{start}{end}.data"));
        let numbered = (2..).map(|number| path(&format!("-{number}")));
        std::iter::once(path("")).chain(numbered).find(|path| fs::symlink_metadata(path).is_err()).unwrap_or_default()
    }

    /// Removes the oldest dumps, so that at most `count` remain. Returns the dumps that could not be removed, each with
    /// the error.
    pub fn keep_newest(&self, count: usize) -> Vec<(PathBuf, io::Error)> {
        let Ok(entries) = fs::read_dir(&self.0) else { return Vec::new() };
        let mut dumps: Vec<_> = entries.flatten().map(|entry| entry.file_name()).filter(|name| is_dump(name)).collect();
        // The names begin with the date and the time. The modification times order dumps of the same second.
        let modified = |name: &OsStr| fs::symlink_metadata(self.0.join(name)).and_then(|file| file.modified()).ok();
        let second = |name: &OsStr| name.as_encoded_bytes()[..SECOND].to_owned();
        dumps.sort_by_cached_key(|name| (second(name), modified(name)));
        let surplus = dumps.len().saturating_sub(count);
        let remove = |name: &OsStr| {
            let path = self.0.join(name);
            let removed = if path.is_dir() {
                perf_prof_recordings::write::directory::remove(&path)
            } else {
                fs::remove_file(&path)
            };
            removed.err().map(|error| (path, error))
        };
        dumps[..surplus].iter().filter_map(|name| remove(name)).collect()
    }
}

/// Returns whether a file has a name that [`DumpFolder::new_path`] gives.
fn is_dump(name: &OsStr) -> bool {
    let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".data")) else { return false };
    let are_digits = |text: &str, count| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = name.splitn(3, '-');
    let mut part = || parts.next().unwrap_or_default();
    are_digits(part(), 8) && are_digits(part(), 6) && !part().is_empty()
}

/// Returns a text that can be a part of a file name: letters, digits, `.`, `-` and `_` stay, other characters become
/// `_`.
fn file_name_of(reason: &str) -> String {
    let kept = |letter: char| if letter.is_ascii_alphanumeric() || ".-".contains(letter) { letter } else { '_' };
    let name: String = reason.chars().take(LONGEST_REASON).map(kept).collect();
    if name.is_empty() { "snapshot".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use chrono::TimeZone;

    use super::*;

    #[test]
    fn names_have_the_time_and_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let dumps = DumpFolder::of_output(folder.path());
        let now = Local.with_ymd_and_hms(2026, 11, 26, 9, 5, 7).unwrap();
        let name = |reason| dumps.new_path(now, reason).file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(name("fsync"), "20261126-090507-fsync.data");
        assert_eq!(name("sched:sched_switch/../x y"), "20261126-090507-sched_sched_switch_.._x_y.data");
        assert_eq!(name(""), "20261126-090507-snapshot.data");
        fs::write(folder.path().join("20261126-090507-fsync.data"), "x").unwrap();
        assert_eq!(name("fsync"), "20261126-090507-fsync-2.data");
    }

    #[test]
    fn only_the_oldest_dumps_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let dumps = DumpFolder::of_output(folder.path());
        let others = ["perf.data", "20261126-x.data", "20261126-090507-.data", "2026112-090507-a.data"];
        let made =
            ["20261126-090507-c.data", "20261126-090507-b.data", "20251126-090507-z.data", "20261126-090507-d.data"];
        others.iter().chain(&made).for_each(|name| fs::write(folder.path().join(name), "x").unwrap());
        let written = |name: &str, second| {
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
            fs::File::options().write(true).open(folder.path().join(name)).unwrap().set_modified(time).unwrap();
        };
        made.iter().zip([3, 4, 5, 2]).for_each(|(name, second)| written(name, second));
        assert!(dumps.keep_newest(2).is_empty());
        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        let mut expected: Vec<_> = others.iter().chain(&made[..2]).map(Into::into).collect::<Vec<std::ffi::OsString>>();
        expected.sort();
        assert_eq!(left, expected);
    }

    #[test]
    fn the_folder_is_that_of_the_output() {
        let of = |output: &str| DumpFolder::of_output(Path::new(output)).0;
        assert_eq!(of("perf.data"), Path::new("."));
        assert_eq!(of("/nonexistent/incidents/"), Path::new("/nonexistent/incidents/"));
        assert_eq!(of("/nonexistent/incidents"), Path::new("/nonexistent/incidents"));
        assert_eq!((of("incidents"), of("x.d")), (PathBuf::from("incidents"), PathBuf::from("x.d")));
        assert_eq!(of("/nonexistent/perf.data"), Path::new("/nonexistent"));
        assert_eq!(of(""), Path::new("."));
        assert_eq!(of("/tmp"), Path::new("/tmp"));
    }
}
