//! Defines probes in tracefs, and removes the definitions after use.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use super::{file::SharedFile, tracefs::Tracefs};
use crate::mutex::Mutex;

/// The code that is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbedCode {
    /// A function of the kernel.
    Kernel(String),
    /// A program or library.
    File(SharedFile),
}

/// One place in the probed code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbedPlace {
    /// The offset from the start of the function or of the file, in bytes.
    pub offset: u64,
    /// The file offset of the probe's semaphore: a 16-bit counter that the kernel increments while the probe is open.
    /// `None` if the probe has no semaphore.
    pub semaphore: Option<u64>,
    /// The arguments in the kernel's syntax, without spaces: `size=%di:u64`.
    pub arguments: Vec<String>,
}

/// The moment at which the probe fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FireAt {
    /// When the probed location is reached.
    Entry,
    /// When the function that starts at the probed location returns.
    Return,
}

/// What a definition of a probe in tracefs contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeDefinition {
    /// The code that is probed.
    pub probed: ProbedCode,
    /// The moment at which the probe fires.
    pub fire_at: FireAt,
    /// The places of the probe. The arguments have the same names and types at all places.
    pub places: Vec<ProbedPlace>,
}

/// A definition that exists in tracefs. Dropping the value removes the definition; the probe's event must be closed
/// before.
#[derive(Debug)]
pub struct DefinedProbe {
    list: PathBuf,
    name: String,
    id: u32,
}

/// The files in tracefs that list all definitions.
const LISTS: [&str; 2] = ["kprobe_events", "uprobe_events"];

/// The number of definitions that this process has made.
static COUNT: Mutex<u32> = Mutex::new(0);

impl ProbeDefinition {
    fn list(&self) -> &'static str {
        match self.probed {
            ProbedCode::Kernel(_) => LISTS[0],
            ProbedCode::File(_) => LISTS[1],
        }
    }

    /// Returns whether the probe needs a definition in tracefs. The PMUs `kprobe` and `uprobe` support neither
    /// semaphores nor arguments nor several places.
    pub fn needs_tracefs(&self) -> bool {
        let is_plain = |place: &ProbedPlace| place.semaphore.is_none() && place.arguments.is_empty();
        self.places.len() != 1 || !self.places.iter().all(is_plain)
    }

    /// Returns the line that defines the probe at a place. The kernel splits the line at spaces and ends it at `#`. A
    /// path may contain these characters, so the line names the file by its descriptor. Besides, another file may be at
    /// the path by now.
    fn line(&self, name: &str, place: &ProbedPlace) -> String {
        let letter = if self.fire_at == FireAt::Return { 'r' } else { 'p' };
        let mut line = match (&self.probed, place.offset) {
            (ProbedCode::Kernel(function), 0) => format!("{letter}:{name} {function}"),
            (ProbedCode::Kernel(function), offset) => format!("{letter}:{name} {function}+{offset}"),
            (ProbedCode::File(file), offset) => format!("{letter}:{name} {}:{offset:#x}", file.path().display()),
        };
        if let Some(semaphore) = place.semaphore {
            line += &format!("({semaphore:#x})");
        }
        line.extend(place.arguments.iter().flat_map(|argument| [" ", argument]));
        line
    }

    /// Defines the probe under a new name. All places get the same name, so the kernel adds them to the same event. The
    /// first call also removes the definitions of processes that have exited.
    pub fn define(&self) -> io::Result<DefinedProbe> {
        let tracefs = Tracefs::find().map_err(io::Error::other)?;
        let group = group(std::process::id())?;
        let mut count = COUNT.lock();
        if *count == 0 {
            remove_stale(&tracefs);
        }
        let name = loop {
            let name = format!("e{count}");
            *count += 1;
            // If the name existed already, the kernel would add the places to the existing event.
            if !tracefs.has_event(&group, &name) {
                break name;
            }
        };
        let mut defined =
            DefinedProbe { list: tracefs.root().join(self.list()), name: format!("{group}/{name}"), id: 0 };
        for place in &self.places {
            append(&defined.list, self.line(&defined.name, place).as_bytes())
                .map_err(|error| explained(error, &tracefs, &defined.name))?;
        }
        defined.id = tracefs.id(&group, &name).map_err(io::Error::other)?;
        Ok(defined)
    }
}

impl DefinedProbe {
    /// Returns the id of the probe's tracepoint.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the text of the format file of the probe's tracepoint.
    pub fn format(&self) -> io::Result<String> {
        let tracefs = Tracefs::find().map_err(io::Error::other)?;
        let (group, name) = self.name.split_once('/').unwrap_or_default();
        tracefs.format(group, name).map_err(io::Error::other)
    }
}

impl Drop for DefinedProbe {
    fn drop(&mut self) {
        // A child that was just forked may keep the event open until it calls exec. If the definition cannot be removed
        // now, the next process that defines a probe removes it.
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

/// Adds the kernel's reason to the error of a refused definition. The kernel writes the reason to the file `error_log`,
/// as `[time] trace_uprobe: error: REASON`. The next line there is `  Command: DEFINITION` (`__trace_probe_log_err()`
/// in kernel/trace/trace_probe.c).
fn explained(error: io::Error, tracefs: &Tracefs, name: &str) -> io::Error {
    let log = tracefs.read("error_log").unwrap_or_default();
    match reason(&log, name) {
        Some(reason) => io::Error::new(error.kind(), format!("{reason} ({error})")),
        None => error,
    }
}

/// Returns the reason of the last error that the log contains for the definition `name`.
fn reason<'a>(log: &'a str, name: &str) -> Option<&'a str> {
    let lines: Vec<&str> = log.lines().collect();
    let of_name = |line: &str| line.trim_start().starts_with("Command:") && line.contains(&format!(":{name} "));
    let at = lines.iter().rposition(|line| of_name(line))?;
    Some(lines[..at].last()?.split_once("error: ")?.1.trim())
}

fn append(list: &Path, line: &[u8]) -> io::Result<()> {
    // Without `append`, the kernel would clear the list. The kernel needs the whole line in one write.
    OpenOptions::new().append(true).open(list)?.write_all(line)
}

/// Returns the group for the definitions of process `pid`. All PID namespaces share one list of definitions, and each
/// namespace can contain a process with the same pid. So the group contains the namespace's number.
fn group(pid: u32) -> io::Result<String> {
    let namespace = fs::read_link("/proc/self/ns/pid")?;
    let digits: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    Ok(format!("perf_prof_{pid}_{digits}"))
}

/// Removes the definitions that other processes of this PID namespace have left over: processes that were killed, and
/// earlier processes with the pid of this process. The kernel does not remove a definition while its event is open.
fn remove_stale(tracefs: &Tracefs) {
    for LeftOver { list, name } in left_over(tracefs) {
        let _ = append(&list, format!("-:{name}").as_bytes());
    }
}

/// A definition that a process has left over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOver {
    /// The file in tracefs that lists the definition.
    pub list: PathBuf,
    /// The group and the name of the definition.
    pub name: String,
}

/// Returns the definitions that processes of this PID namespace have left over. Either these processes were killed, or
/// tracefs was unmounted before they ended. The next process that defines a probe removes these definitions.
pub fn left_over(tracefs: &Tracefs) -> Vec<LeftOver> {
    let mut found = Vec::new();
    for list in LISTS {
        let text = tracefs.read(list).unwrap_or_default();
        let names = text.lines().filter_map(stale).map(str::to_owned);
        found.extend(names.map(|name| LeftOver { list: tracefs.root().join(list), name }));
    }
    found
}

/// Returns the name of the definition in a line of a list, if the process that defined it has exited.
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

    #[test]
    fn lines_that_define_probes() {
        let line = |probed: &ProbedCode, fire_at, offset, semaphore| {
            let place = ProbedPlace { offset, semaphore, arguments: Vec::new() };
            ProbeDefinition { probed: probed.clone(), fire_at, places: Vec::new() }.line("g/e", &place)
        };
        let kernel = ProbedCode::Kernel("vfs_read".into());
        assert_eq!(line(&kernel, FireAt::Return, 0, None), "r:g/e vfs_read");
        assert_eq!(line(&kernel, FireAt::Entry, 4, None), "p:g/e vfs_read+4");
        let file = SharedFile::open(Path::new("/proc/self/exe")).unwrap();
        let path = file.path().display().to_string();
        let file = ProbedCode::File(file);
        assert_eq!(line(&file, FireAt::Entry, 0x10, None), format!("p:g/e {path}:0x10"));
        assert_eq!(line(&file, FireAt::Entry, 0x10, Some(0x200)), format!("p:g/e {path}:0x10(0x200)"));
    }

    #[test]
    fn arguments_are_words_after_the_place() {
        let probed = ProbedCode::Kernel("do_sys_openat2".into());
        let arguments = vec!["path=+0(%si):ustring".to_owned(), "how=%dx".to_owned()];
        let place = ProbedPlace { offset: 0, semaphore: None, arguments };
        let definition = ProbeDefinition { probed, fire_at: FireAt::Entry, places: vec![place.clone()] };
        assert_eq!(definition.line("g/e", &place), "p:g/e do_sys_openat2 path=+0(%si):ustring how=%dx");
        assert!(definition.needs_tracefs());
    }

    #[test]
    fn the_reason_of_a_refusal_is_the_last_one_of_the_definition() {
        let log = "[   10.1] trace_uprobe: error: Invalid register name\n  Command: p:g/e0 /bin/true:0x10 n=%xx\n     ^\n\
                   [   11.1] trace_uprobe: error: Unknown type is specified\n  Command: p:g/e1 /bin/true:0x10 n=%di:x\n   ^\n";
        assert_eq!(reason(log, "g/e1"), Some("Unknown type is specified"));
        assert_eq!(reason(log, "g/e0"), Some("Invalid register name"));
        assert_eq!(reason(log, "g/e"), None);
    }

    #[test]
    fn only_definitions_of_exited_processes_are_stale() {
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
