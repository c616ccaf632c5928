//! tracefs: its mount point and its text files. The module `tracefs` of the crate `format` interprets the texts.

use std::{
    collections::HashMap,
    ffi::CStr,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::{
    call::{CallError, check},
    capability::with_right_to_read,
};

/// The folders where tracefs may be mounted: its own mount point, and a folder in debugfs for old programs.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A mounted tracefs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracefs {
    root: PathBuf,
    /// Texts of files that can no longer be read when they are needed. The keys are paths below `root`.
    kept: Arc<HashMap<String, String>>,
}

/// Why tracefs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TracefsError {
    /// tracefs is not mounted, and perf-prof could not mount it.
    #[error("tracefs is not mounted ({0}); mount it with `mount -t tracefs nodev /sys/kernel/tracing`")]
    NotMounted(io::Error),
    /// tracefs is mounted, but only root may read it.
    #[error(
        "no permission to read {}; run as root, or let all users read it with `mount -o remount,mode=755 /sys/kernel/tracing`",
        .0.display()
    )]
    Permission(PathBuf),
    /// A file could not be read.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl Tracefs {
    /// Finds the mount point of tracefs. If tracefs is not mounted, tries to mount it.
    pub fn find() -> Result<Tracefs, TracefsError> {
        if let Some(found) = Self::find_mounted()? {
            return Ok(found);
        }
        mount_tracefs().map_err(|error| TracefsError::NotMounted(error.source))?;
        Self::find_mounted()?.ok_or_else(|| TracefsError::NotMounted(io::ErrorKind::NotFound.into()))
    }

    fn find_mounted() -> Result<Option<Tracefs>, TracefsError> {
        for place in PLACES {
            // Only root may search the root directory of tracefs (mode 0700). So "permission denied" at
            // /sys/kernel/tracing means that tracefs is mounted there. At /sys/kernel/debug/tracing it means nothing:
            // /sys/kernel/debug itself refuses access, whether tracefs is mounted there or not.
            match with_right_to_read(|| fs::metadata(Path::new(place).join("events"))) {
                Ok(_) => return Ok(Some(Tracefs::at(place))),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied && place == PLACES[0] => {
                    return Err(TracefsError::Permission(place.into()));
                }
                Err(_) => {}
            }
        }
        Ok(None)
    }

    /// Returns a tracefs at its usual mount point, without a check that it is mounted there. For callers that also work
    /// without the files of tracefs.
    pub fn at_usual_place() -> Tracefs {
        Tracefs::at(PLACES[0])
    }

    fn at(place: &str) -> Tracefs {
        Tracefs { root: place.into(), kept: Arc::default() }
    }

    /// Reads these files and keeps their texts; each path is relative to the mount point. Later reads return these
    /// texts. Files that cannot be read are skipped.
    pub fn keep(&mut self, paths: impl IntoIterator<Item = String>) {
        let texts = paths.into_iter().filter_map(|path| self.read(&path).ok().map(|text| (path, text)));
        self.kept = Arc::new(texts.collect());
    }

    /// Returns the path of an event's format file, relative to the mount point.
    pub fn format_path(system: &str, name: &str) -> String {
        format!("events/{system}/{name}/format")
    }

    /// Returns the mount point.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the text of `available_events`, with a line `system:name` for each event.
    pub fn available_events(&self) -> Result<String, TracefsError> {
        self.read("available_events")
    }

    /// Returns all events of the kernel as (system, name), sorted.
    pub fn events(&self) -> Result<Vec<(String, String)>, TracefsError> {
        let text = self.available_events()?;
        let split = |line: &str| line.split_once(':').map(|(system, name)| (system.to_owned(), name.to_owned()));
        let mut events: Vec<_> = text.lines().filter_map(split).collect();
        events.sort();
        Ok(events)
    }

    /// Returns whether the kernel has this event.
    pub fn has_event(&self, system: &str, name: &str) -> bool {
        with_right_to_read(|| self.root.join(format!("events/{system}/{name}/id")).exists())
    }

    /// Returns the id of an event, which is the `config` of its perf attr.
    pub fn id(&self, system: &str, name: &str) -> Result<u32, TracefsError> {
        let path = format!("events/{system}/{name}/id");
        let text = self.read(&path)?;
        text.trim().parse().map_err(|error| CallError::new(format!("parse {path}"), io::Error::other(error)).into())
    }

    /// Returns the text of an event's format file.
    pub fn format(&self, system: &str, name: &str) -> Result<String, TracefsError> {
        self.read(&Self::format_path(system, name))
    }

    /// Returns whether an event is a uprobe that is defined in tracefs. `uprobe_events` contains lines like
    /// `p:system/name /path:0x1180 arguments`.
    pub fn is_uprobe(&self, system: &str, name: &str) -> bool {
        // A kernel without uprobes does not have this file.
        let list = self.read("uprobe_events").unwrap_or_default();
        let event = format!("{system}/{name}");
        let mut events = list.lines().filter_map(|line| line.split_whitespace().next()?.split_once(':'));
        events.any(|(_, defined)| defined == event)
    }

    /// Returns the kernel's table of format strings and their addresses. Samples of some events contain only the
    /// address of a format string.
    pub fn printk_formats(&self) -> Result<String, TracefsError> {
        self.read("printk_formats")
    }

    /// Returns the text of a file; `path` is relative to the mount point.
    pub fn read(&self, path: &str) -> Result<String, TracefsError> {
        if let Some(text) = self.kept.get(path) {
            return Ok(text.clone());
        }
        let path = self.root.join(path);
        match with_right_to_read(|| read_at_once(&path)) {
            // Files may contain strings of drivers, and not all of these strings are UTF-8.
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(TracefsError::Permission(path)),
            Err(error) => Err(CallError::new(format!("read {}", path.display()), error).into()),
        }
    }
}

/// Reads a whole file; the first read requests 16 KiB. Some files return text only for the first read, and only as much
/// as this read requests (show_header() in kernel/trace/trace_events.c).
fn read_at_once(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let mut bytes = vec![0; 16 << 10];
    let size = file.read(&mut bytes)?;
    bytes.truncate(size);
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the kernel's explanation why it refuses a trace filter, if there is one.
///
/// The ioctl of perf events only returns EINVAL. But after a write to the filter file of an event was refused, the file
/// contains an explanation. The write is made in a new tracing instance, so filters of other tools do not change.
pub fn explain_filter(system: &str, name: &str, filter: &str) -> Option<String> {
    let tracefs = Tracefs::find().ok()?;
    let instance = Instance::new(&tracefs)?;
    let file = instance.0.join("events").join(system).join(name).join("filter");
    fs::write(&file, filter).err()?;
    // event_filter_read() returns text only for the first read. The second read is at the end of the file, even if the
    // first read was short.
    let mut text = vec![0; 16 << 10];
    let size = fs::File::open(file).and_then(|mut file| file.read(&mut text)).ok()?;
    filter_reason(&String::from_utf8_lossy(&text[..size]))
}

/// Returns the explanation in `text`, the content of a filter file after a refused write. `text` contains the filter, a
/// line with a caret below the error, and `parse_error: reason`.
fn filter_reason(text: &str) -> Option<String> {
    let (before, reason) = text.split_once("parse_error:")?;
    let reason = reason.trim();
    let mut lines = before.lines();
    let (filter, caret) = (lines.next()?, lines.next().and_then(|line| line.find('^')));
    match caret.and_then(|at| filter.get(..at)).map(str::trim).filter(|before| !before.is_empty()) {
        Some(before) => Some(format!("{reason} (the kernel found the error at the end of `{before}`)")),
        None => Some(reason.to_owned()),
    }
}

/// A tracing instance. Dropping the value removes it.
struct Instance(PathBuf);

impl Instance {
    fn new(tracefs: &Tracefs) -> Option<Instance> {
        let path = tracefs.root.join(format!("instances/perf-prof-{}", std::process::id()));
        fs::create_dir(&path).ok().map(|()| Instance(path))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // A child that was just forked may keep a file of the instance open until it calls exec. If the instance still
        // cannot be removed after all attempts, it stays. It is empty, so this is not reported.
        for _ in 0..100 {
            match fs::remove_dir(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => return,
            }
        }
    }
}

fn mount_tracefs() -> Result<(), CallError> {
    const KIND: &CStr = c"tracefs";
    // SAFETY: all strings end with a NUL and outlive the call; tracefs needs no mount data.
    let result =
        unsafe { libc::mount(c"nodev".as_ptr(), c"/sys/kernel/tracing".as_ptr(), KIND.as_ptr(), 0, std::ptr::null()) };
    check("mount", result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_on_a_filter() {
        let reason = |text| filter_reason(text).unwrap();
        let field = "prev_pidd == 1\n          ^\nparse_error: Field not found\n";
        assert_eq!(reason(field), "Field not found (the kernel found the error at the end of `prev_pidd`)");
        assert_eq!(reason("(prev_pid == 1\n^\nparse_error: Too many '('\n"), "Too many '('");
        assert_eq!(filter_reason("none\n"), None);
    }
}
