//! Probes that are defined in tracefs for as long as they are used. Knows nothing of what their events mean.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::{
        fd::AsRawFd,
        unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::tracefs::Tracefs;

/// What is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probed {
    /// A function of the kernel, and how far behind its begin.
    Kernel(String, u64),
    /// A program or library, and the offset in the file.
    File(PathBuf, u64),
}

/// What makes the probe's event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// That the place is reached.
    Entry,
    /// That the function which begins there returns.
    Return,
}

/// A probe as tracefs defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Where.
    pub probed: Probed,
    /// When.
    pub moment: Moment,
}

/// A definition that tracefs has; removed with this value, whose event nobody may have open then.
#[derive(Debug)]
pub struct Defined {
    list: PathBuf,
    name: String,
    id: u32,
}

/// The lists of definitions.
const LISTS: [&str; 2] = ["kprobe_events", "uprobe_events"];

/// How many this process has defined.
static COUNT: Mutex<u32> = Mutex::new(0);

impl Definition {
    fn list(&self) -> &'static str {
        match self.probed {
            Probed::Kernel(..) => LISTS[0],
            Probed::File(..) => LISTS[1],
        }
    }

    /// The line that defines it. The kernel divides it at blanks and ends it at `#`: a path with such is given by a
    /// descriptor, which has to stay open until the line is written.
    fn line(&self, name: &str) -> io::Result<(Vec<u8>, Option<File>)> {
        let letter = if self.moment == Moment::Return { 'r' } else { 'p' };
        let mut line = format!("{letter}:{name} ").into_bytes();
        let mut opened = None;
        match &self.probed {
            Probed::Kernel(function, 0) => line.extend(function.bytes()),
            Probed::Kernel(function, offset) => line.extend(format!("{function}+{offset}").bytes()),
            Probed::File(path, offset) => {
                let path = path.as_os_str().as_bytes();
                if path.iter().all(|&byte| byte.is_ascii_graphic() && byte != b'#') {
                    line.extend(path);
                } else {
                    let path = Path::new(std::ffi::OsStr::from_bytes(path));
                    let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?;
                    line.extend(format!("/proc/self/fd/{}", file.as_raw_fd()).bytes());
                    opened = Some(file);
                }
                line.extend(format!(":{offset:#x}").bytes());
            }
        }
        Ok((line, opened))
    }

    /// Defines it, under a name of its own. What processes that are no longer there have left is removed first.
    pub fn define(&self) -> io::Result<Defined> {
        let tracefs = Tracefs::find().map_err(io::Error::other)?;
        let group = group(std::process::id())?;
        let mut count = COUNT.lock().unwrap_or_else(PoisonError::into_inner);
        if *count == 0 {
            remove_stale(&tracefs);
        }
        let name = loop {
            let name = format!("e{count}");
            *count += 1;
            // A second definition of a name would add its place to the first one's.
            if !tracefs.has_event(&group, &name) {
                break name;
            }
        };
        let list = tracefs.root().join(self.list());
        let (line, _opened) = self.line(&format!("{group}/{name}"))?;
        append(&list, &line)?;
        let mut defined = Defined { list, name: format!("{group}/{name}"), id: 0 };
        defined.id = tracefs.id(&group, &name).map_err(io::Error::other)?;
        Ok(defined)
    }
}

impl Defined {
    /// The number of its tracepoint.
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for Defined {
    fn drop(&mut self) {
        // A child that was forked just now may hold the event until it calls exec. What stays is removed by the next
        // process that defines one.
        for _ in 0..100 {
            match append(&self.list, format!("-:{}", self.name).as_bytes()) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => return,
            }
        }
    }
}

fn append(list: &Path, line: &[u8]) -> io::Result<()> {
    // Without `append` the kernel would empty the list. A line has to come with one write.
    OpenOptions::new().append(true).open(list)?.write_all(line)
}

/// The group of a process's definitions. The list is one for all namespaces, in which pids are not.
fn group(pid: u32) -> io::Result<String> {
    let namespace = fs::read_link("/proc/self/ns/pid")?;
    let digits: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    Ok(format!("perf_prof_{pid}_{digits}"))
}

/// Removes what has been left behind by processes of our namespace that were killed, or had our pid before us. The kernel
/// keeps a definition whose event is open.
fn remove_stale(tracefs: &Tracefs) {
    for list in LISTS {
        let text = tracefs.read(list).unwrap_or_default();
        for name in text.lines().filter_map(stale) {
            let _ = append(&tracefs.root().join(list), format!("-:{name}").as_bytes());
        }
    }
}

/// The name in a line of a list, if who defined it is gone.
fn stale(line: &str) -> Option<&str> {
    let (_, name) = line.split_whitespace().next()?.split_once(':')?;
    let (own, _) = name.split_once('/')?;
    let pid: u32 = own.strip_prefix("perf_prof_")?.split('_').next()?.parse().ok()?;
    let is_of_our_namespace = group(pid).is_ok_and(|group| group == own);
    let is_gone = pid == std::process::id() || !Path::new(&format!("/proc/{pid}")).exists();
    (is_of_our_namespace && is_gone).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(probed: Probed, moment: Moment) -> String {
        String::from_utf8(Definition { probed, moment }.line("g/e").unwrap().0).unwrap()
    }

    #[test]
    fn lines_that_define_probes() {
        assert_eq!(line(Probed::Kernel("vfs_read".into(), 0), Moment::Return), "r:g/e vfs_read");
        assert_eq!(line(Probed::Kernel("vfs_read".into(), 4), Moment::Entry), "p:g/e vfs_read+4");
        assert_eq!(line(Probed::File("/lib/a:b.so".into(), 0x10), Moment::Entry), "p:g/e /lib/a:b.so:0x10");
    }

    #[test]
    fn a_path_that_would_be_divided_is_given_by_a_descriptor() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a b", "a#b", "a\nb", "ä"] {
            let path = directory.path().join(name);
            fs::write(&path, "").unwrap();
            let line = line(Probed::File(path, 1), Moment::Entry);
            assert!(line.starts_with("p:g/e /proc/self/fd/") && line.ends_with(":0x1"), "{line}");
        }
    }

    /// Those of the living are kept, and what is not ours.
    #[test]
    fn only_definitions_of_the_dead_are_stale() {
        let dead = i32::MAX as u32;
        let line = |group: &str| format!("p:{group}/e0 /bin/true:0x10");
        let is_stale = |group: &str| stale(&line(group)).is_some();
        assert_eq!(stale(&line(&group(dead).unwrap())), Some(format!("{}/e0", group(dead).unwrap()).as_str()));
        assert!(!is_stale(&group(1).unwrap()));
        assert!(is_stale(&group(std::process::id()).unwrap()));
        for other in [format!("perf_prof_{dead}_1"), format!("perf_prof_test_{dead}"), format!("perf_prof_{dead}")] {
            assert!(!is_stale(&other), "{other}");
        }
        assert_eq!(stale("p:nonsense"), None);
        assert_eq!(stale(""), None);
    }
}
