//! tracefs: where it is mounted, and the text files in it. What they say is the `tracefs` room's business.

use std::{
    ffi::CStr,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use super::call::{CallError, check};

/// Where tracefs is mounted: by itself, or by debugfs for old programs.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A mounted tracefs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracefs {
    root: PathBuf,
}

/// Why there is no tracefs.
#[derive(Debug, thiserror::Error)]
pub enum TracefsError {
    /// Not mounted, and we may not mount it.
    #[error("tracefs is not mounted ({0}); mount it with `mount -t tracefs nodev /sys/kernel/tracing`")]
    NotMounted(io::Error),
    /// Mounted, but only root may look.
    #[error(
        "no permission to read {}; run as root, or open it to all with `mount -o remount,mode=755 /sys/kernel/tracing`",
        .0.display()
    )]
    Permission(PathBuf),
    /// A file could not be read.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl Tracefs {
    /// Finds where tracefs is mounted. Where it is not, mounts it when we may.
    pub fn find() -> Result<Tracefs, TracefsError> {
        if let Some(found) = Self::look()? {
            return Ok(found);
        }
        mount_tracefs().map_err(|error| TracefsError::NotMounted(error.source))?;
        Self::look()?.ok_or_else(|| TracefsError::NotMounted(io::ErrorKind::NotFound.into()))
    }

    fn look() -> Result<Option<Tracefs>, TracefsError> {
        for place in PLACES {
            // The directory is there for root alone (mode 0700), so "permission denied" means that it is mounted, as
            // long as it is tracefs itself that refuses; /sys/kernel/debug is closed whether or not tracefs is in it.
            match fs::metadata(Path::new(place).join("events")) {
                Ok(_) => return Ok(Some(Tracefs { root: place.into() })),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied && place == PLACES[0] => {
                    return Err(TracefsError::Permission(place.into()));
                }
                Err(_) => {}
            }
        }
        Ok(None)
    }

    /// Where it is expected, for whoever can do without what is in it.
    pub fn expected() -> Tracefs {
        Tracefs { root: PLACES[0].into() }
    }

    /// Its directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The kernel's list of events, a line `system:name` for each.
    pub fn available_events(&self) -> Result<String, TracefsError> {
        self.read("available_events")
    }

    /// The kernel's events as (system, name), sorted.
    pub fn events(&self) -> Result<Vec<(String, String)>, TracefsError> {
        let text = self.available_events()?;
        let split = |line: &str| line.split_once(':').map(|(system, name)| (system.to_owned(), name.to_owned()));
        let mut events: Vec<_> = text.lines().filter_map(split).collect();
        events.sort();
        Ok(events)
    }

    /// Whether there is such an event.
    pub fn has_event(&self, system: &str, name: &str) -> bool {
        self.root.join(format!("events/{system}/{name}/id")).exists()
    }

    /// An event's number, the config of its perf attr.
    pub fn id(&self, system: &str, name: &str) -> Result<u32, TracefsError> {
        let path = format!("events/{system}/{name}/id");
        let text = self.read(&path)?;
        text.trim().parse().map_err(|error| CallError::new(format!("parse {path}"), io::Error::other(error)).into())
    }

    /// An event's format file.
    pub fn format(&self, system: &str, name: &str) -> Result<String, TracefsError> {
        self.read(&format!("events/{system}/{name}/format"))
    }

    /// Whether an event is a probe that somebody has put into a program; the list of these has lines as
    /// `p:system/name /path:0x1180 arguments`.
    pub fn is_uprobe(&self, system: &str, name: &str) -> bool {
        // A kernel that has no such probes has no list.
        let list = self.read("uprobe_events").unwrap_or_default();
        let event = format!("{system}/{name}");
        let mut events = list.lines().filter_map(|line| line.split_whitespace().next()?.split_once(':'));
        events.any(|(_, defined)| defined == event)
    }

    /// The kernel's format strings by address, for print formats that hold only their addresses.
    pub fn printk_formats(&self) -> Result<String, TracefsError> {
        self.read("printk_formats")
    }

    /// Reads a file below the root.
    pub fn read(&self, path: &str) -> Result<String, TracefsError> {
        let path = self.root.join(path);
        match read_at_once(&path) {
            // Tables of the kernel hold strings of drivers, which are not all UTF-8.
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(TracefsError::Permission(path)),
            Err(error) => Err(CallError::new(format!("read {}", path.display()), error).into()),
        }
    }
}

/// Reads a file, beginning with a large piece: some files (show_header() in kernel/trace/trace_events.c) give their text to
/// the first read alone, as much of it as was asked for.
fn read_at_once(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let mut bytes = vec![0; 16 << 10];
    let size = file.read(&mut bytes)?;
    bytes.truncate(size);
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The kernel's own words on why it refuses a trace filter, where it has some.
///
/// The ioctl only says EINVAL; the filter file of an event explains. It is written in a tracing instance of our own,
/// so that nobody else's filter is touched.
pub fn explain_filter(system: &str, name: &str, filter: &str) -> Option<String> {
    let tracefs = Tracefs::find().ok()?;
    let instance = Instance::new(&tracefs)?;
    let file = instance.0.join("events").join(system).join(name).join("filter");
    fs::write(&file, filter).err()?;
    // event_filter_read() gives the text to the first read and the end of file to the second, however short the first.
    let mut text = vec![0; 16 << 10];
    let size = fs::File::open(file).and_then(|mut file| file.read(&mut text)).ok()?;
    filter_reason(&String::from_utf8_lossy(&text[..size]))
}

/// What the filter file says after a refused write: the filter, a caret, and `parse_error: reason`.
fn filter_reason(text: &str) -> Option<String> {
    let (before, reason) = text.split_once("parse_error:")?;
    let reason = reason.trim();
    let mut lines = before.lines();
    let (filter, caret) = (lines.next()?, lines.next().and_then(|line| line.find('^')));
    match caret.and_then(|at| filter.get(..at)).map(str::trim).filter(|before| !before.is_empty()) {
        Some(before) => Some(format!("{reason}, at the end of `{before}`")),
        None => Some(reason.to_owned()),
    }
}

/// A tracing instance that is removed with this value.
struct Instance(PathBuf);

impl Instance {
    fn new(tracefs: &Tracefs) -> Option<Instance> {
        let path = tracefs.root.join(format!("instances/perf-prof-{}", std::process::id()));
        fs::create_dir(&path).ok().map(|()| Instance(path))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // A child that was forked just now may hold a file of it until it calls exec. Left behind, it would be an empty
        // instance; there is nobody to tell.
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
    // SAFETY: all texts end with a NUL and live across the call; tracefs needs no data.
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
        assert_eq!(reason(field), "Field not found, at the end of `prev_pidd`");
        assert_eq!(reason("(prev_pid == 1\n^\nparse_error: Too many '('\n"), "Too many '('");
        assert_eq!(filter_reason("none\n"), None);
    }

    /// It ended after 32 bytes.
    #[test]
    fn a_file_that_is_given_once_is_read_whole() {
        match Tracefs::find() {
            Err(error) => println!("skipped: {error}"),
            Ok(tracefs) => {
                let text = tracefs.read("events/header_page").unwrap();
                assert!(text.contains("commit") && text.ends_with('\n'), "{text}");
            }
        }
    }

    #[test]
    fn a_refused_filter_is_explained() {
        match Tracefs::find() {
            Err(error) => println!("skipped: {error}"),
            Ok(tracefs) => {
                let reason = explain_filter("sched", "sched_switch", "no_such_field == 1").unwrap();
                assert_eq!(reason, "Field not found, at the end of `no_such_field`");
                assert_eq!(explain_filter("sched", "sched_switch", "prev_pid == 1"), None);
                assert!(!tracefs.root.join(format!("instances/perf-prof-{}", std::process::id())).exists());
            }
        }
    }
}
