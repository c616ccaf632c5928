//! Finds the file of a probe in the file system of the traced processes. The user gives a path, or only the name of a
//! program or library. Reads only the first bytes of files, which show the machine that a file is for.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fs, io,
    io::Read,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Component, Path, PathBuf},
};

/// Why the file cannot be used or was not found.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is no file at the path.
    #[error("cannot open {path}: {error}{}", hint(path))]
    Path {
        /// The path.
        path: String,
        /// The error of opening it.
        error: io::Error,
    },
    /// The path leads to a directory, a device or the like.
    #[error("{path} is not a program or library: it is not a regular file")]
    Irregular {
        /// The path.
        path: String,
    },
    /// There is no name of a file, and no process whose files could be searched.
    #[error(
        "a file is missing; write usdt:PROVIDER:NAME@\"/path/or/name\", or select processes with -p: then the files that they have mapped are searched"
    )]
    NoFile,
    /// The selected process has not mapped a file of this name, and no such file is in its search folders.
    #[error(
        "the selected process has not mapped {name}, and {name} is not in the folders that the process searches; if its program \
         is linked statically, it has no libraries: give the path of the program"
    )]
    NotMapped {
        /// The name.
        name: String,
    },
    /// No file with this name was found.
    #[error("found no program or library {name} in PATH or the dynamic linker's folders; give its path")]
    Nowhere {
        /// The name.
        name: String,
    },
    /// The program is a script.
    #[error("{path} is a script; give the program that runs it")]
    Script {
        /// The path of the script.
        path: String,
    },
    /// There are several versions of the library.
    #[error("{name} may be {}; give the path of one of them", found.join(" or "))]
    Several {
        /// The name as typed.
        name: String,
        /// The paths of the versions.
        found: Vec<String>,
    },
    /// The processes see different files with this name.
    #[error("{name} is a different file for process {other} than for process {first}; trace them separately")]
    Differ {
        /// The name as typed.
        name: String,
        /// The id of one process.
        first: u32,
        /// The id of a process that sees another file.
        other: u32,
    },
}

fn hint(path: &str) -> &'static str {
    match path {
        _ if path.ends_with('/') => "; put the path in quotes if a filter follows",
        _ if path.starts_with("/proc/") || !path.starts_with('/') => "",
        _ => "; for a path in a container, select a process of the container with -p",
    }
}

/// Finds the file `name` in the file system of `processes`, or in the file system of perf-prof if `processes` is empty.
pub(super) fn find(name: &str, processes: &[u32]) -> Result<PathBuf, FileError> {
    // Processes that do not exist are skipped here, because the capture reports them.
    let mut there = processes.iter().copied().filter(|pid| Path::new(&format!("/proc/{pid}")).exists());
    let Some(first) = there.next() else { return View::own().find(name) };
    let found = View::of_process(first).find(name).map_err(|error| match error {
        FileError::Nowhere { name } => FileError::NotMapped { name },
        error => error,
    })?;
    for other in there {
        if !is_same(&found, &View::of_process(other).find(name)?) {
            return Err(FileError::Differ { name: name.to_owned(), first, other });
        }
    }
    Ok(found)
}

/// Returns the files that the processes have mapped as code. A file that several processes have mapped is returned once.
pub(super) fn mapped(processes: &[u32]) -> Result<Vec<PathBuf>, FileError> {
    if processes.is_empty() {
        return Err(FileError::NoFile);
    }
    let mut paths: Vec<PathBuf> = Vec::new();
    for view in processes.iter().copied().map(View::of_process) {
        for mapped in view.mapped.iter().filter(|mapped| mapped.is_code) {
            let path = view.mapped_path(mapped);
            if path.is_file() && !paths.iter().any(|known| is_same(known, &path)) {
                paths.push(path);
            }
        }
    }
    Ok(paths)
}

fn is_same(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    a == b || identity(a).is_some_and(|a| Some(a) == identity(b))
}

/// Returns whether `path` now leads to another file than `mapped`. Returns false if the user may not check this,
/// because this user may not probe the file either.
fn is_replaced(path: &Path, mapped: &Mapped) -> bool {
    mapped.file.exists() && !is_same(path, &mapped.file)
}

/// The file system as a process sees it.
struct View {
    /// The prefix that turns an absolute path of the process into a path for perf-prof.
    root: PathBuf,
    /// The files that the process has mapped.
    mapped: Vec<Mapped>,
    /// The value of `PATH`.
    path: Option<OsString>,
    /// The value of `LD_LIBRARY_PATH`.
    library_path: Option<OsString>,
}

/// A file that a process has mapped.
#[derive(PartialEq)]
struct Mapped {
    /// The file's path when the file was mapped, without `root`. There may be another file at this path now.
    path: PathBuf,
    /// A path that always leads to the mapped file itself.
    file: PathBuf,
    /// Whether this part of the file may be executed.
    is_code: bool,
}

impl Mapped {
    /// Parses a line of /proc/PID/maps. A line about a file ends with the path of the file. Only paths contain a `/`.
    fn parse(line: &[u8], map_files: &Path) -> Option<Mapped> {
        let path = &line[line.iter().position(|&byte| byte == b'/')?..];
        let path = Path::new(OsStr::from_bytes(path.strip_suffix(b" (deleted)").unwrap_or(path)));
        let mut words = line.split(|&byte| byte == b' ');
        let range = words.next()?;
        let is_code = words.next()?.contains(&b'x');
        Some(Mapped { path: path.into(), file: map_files.join(OsStr::from_bytes(range)), is_code })
    }
}

impl View {
    fn own() -> View {
        let variable = std::env::var_os;
        View { root: "/".into(), mapped: Vec::new(), path: variable("PATH"), library_path: variable("LD_LIBRARY_PATH") }
    }

    /// Returns the view of a process, which may have its own mount namespace or another root directory.
    fn of_process(pid: u32) -> View {
        let proc = |name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
        let own_namespace = fs::read_link("/proc/self/ns/mnt").ok();
        let is_ours = own_namespace.is_some()
            && own_namespace == fs::read_link(proc("ns/mnt")).ok()
            && is_same(Path::new("/"), &proc("root/."));
        let maps = fs::read(proc("maps")).unwrap_or_default();
        let map_files = proc("map_files");
        let lines = maps.split(|&byte| byte == b'\n');
        let mapped = lines.filter_map(|line| Mapped::parse(line, &map_files)).collect();
        let environment = fs::read(proc("environ")).unwrap_or_default();
        let variable = |name: &str| {
            let mut variables = environment.split(|&byte| byte == 0);
            let value = variables.find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
            Some(OsStr::from_bytes(value).to_owned())
        };
        View {
            root: if is_ours { "/".into() } else { proc("root") },
            mapped,
            path: variable("PATH").or_else(|| std::env::var_os("PATH")),
            library_path: variable("LD_LIBRARY_PATH"),
        }
    }

    fn find(&self, name: &str) -> Result<PathBuf, FileError> {
        if name.contains('/') {
            // perf-prof opens relative paths and paths in /proc as it sees them: relative to its own directory, and
            // with its process ids.
            let path = Path::new(name);
            let path = match path.is_relative() || path.starts_with("/proc") {
                true => path.to_owned(),
                false => self.path(path),
            };
            let path = self.as_mapped(path);
            return match fs::metadata(&path) {
                Ok(file) if file.is_file() => Ok(path),
                Ok(_) => Err(FileError::Irregular { path: path.display().to_string() }),
                Err(error) => Err(FileError::Path { path: path.display().to_string(), error }),
            };
        }
        let of_name = |mapped: &&Mapped| mapped.path.file_name().is_some_and(|file| is_called(name, file));
        let mapped = self.mapped.iter().filter(of_name).map(|mapped| self.mapped_path(mapped));
        if let Some(path) = self.only(name, mapped.filter(|path| path.is_file()).collect())? {
            return Ok(path);
        }
        // Some scripts only start a program with the same name that comes later in PATH (pyenv's scripts do this). So
        // the search continues after a script.
        let mut script = None;
        for place in split(&self.path) {
            let path = self.path(&place.join(name));
            match Kind::detect(&path) {
                Some(Kind::Native) => return Ok(path),
                Some(Kind::Script) => script = script.or(Some(path)),
                Some(Kind::Other) | None => {}
            }
        }
        for place in self.libraries() {
            let entries = fs::read_dir(self.path(&place)).into_iter().flatten().flatten();
            let named = entries.map(|entry| entry.file_name()).filter(|file| is_called(name, file));
            let exact = if self.path(&place.join(name)).is_file() { Some(name.into()) } else { None };
            let paths = named.filter(|_| exact.is_none()).chain(exact.clone()).map(|file| self.path(&place.join(file)));
            if let Some(path) =
                self.only(name, paths.filter(|path| Kind::detect(path) == Some(Kind::Native)).collect())?
            {
                return Ok(path);
            }
        }
        Err(match script {
            Some(script) => FileError::Script { path: script.display().to_string() },
            None => FileError::Nowhere { name: name.to_owned() },
        })
    }

    /// Returns a path that leads to a mapped file. If the path that the process sees still leads to this file, returns
    /// this path.
    fn mapped_path(&self, mapped: &Mapped) -> PathBuf {
        match self.path(&mapped.path) {
            path if is_replaced(&path, mapped) => mapped.file.clone(),
            path => path,
        }
    }

    /// Returns the file that the process has mapped from `path`. After an upgrade, a new file may be at this path while
    /// the process still runs the code of the old file.
    fn as_mapped(&self, path: PathBuf) -> PathBuf {
        // In a view with another root, the symbolic links in `path` have already been followed.
        let whole = if self.root == Path::new("/") { fs::canonicalize(&path).ok() } else { None };
        let whole = whole.or_else(|| std::path::absolute(&path).ok()).unwrap_or_else(|| path.clone());
        let is_there =
            |mapped: &&Mapped| mapped.path.file_name() == whole.file_name() && self.path(&mapped.path) == whole;
        let there: Vec<&Mapped> = self.mapped.iter().filter(is_there).collect();
        match there.first() {
            Some(first) if there.iter().all(|mapped| is_replaced(&path, mapped)) => first.file.clone(),
            _ => path,
        }
    }

    /// Returns the file if `paths` contains only one file. Several paths to one file count as one. Fails if there are
    /// several files.
    fn only(&self, name: &str, mut paths: Vec<PathBuf>) -> Result<Option<PathBuf>, FileError> {
        paths.sort();
        paths.dedup_by(|a, b| is_same(a, b));
        match paths.len() {
            0 | 1 => Ok(paths.pop()),
            _ => {
                let found = paths.iter().map(|path| path.display().to_string()).collect();
                Err(FileError::Several { name: name.to_owned(), found })
            }
        }
    }

    /// Converts an absolute path of the process to a path that perf-prof can open. Symbolic links are followed as the
    /// process would follow them. Otherwise an absolute link would lead to perf-prof's own files.
    fn path(&self, path: &Path) -> PathBuf {
        /// The same limit as in the kernel (MAXSYMLINKS).
        const LINKS: usize = 40;
        if self.root == Path::new("/") {
            return path.to_owned();
        }
        let names = |path: &Path| -> Vec<OsString> {
            let names = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
            names.map(|part| part.as_os_str().to_owned()).collect()
        };
        let mut rest = VecDeque::from(names(path));
        let (mut done, mut links) = (self.root.clone(), 0);
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                if done != self.root {
                    done.pop();
                }
                continue;
            }
            done.push(&name);
            let Ok(target) = fs::read_link(&done) else { continue };
            links += 1;
            if links > LINKS {
                break;
            }
            done.pop();
            if target.is_absolute() {
                done.clone_from(&self.root);
            }
            names(&target).into_iter().rev().for_each(|name| rest.push_front(name));
        }
        done.extend(rest);
        done
    }

    /// Returns the directories where the dynamic linker looks for libraries (ld.so(8)): the directories in
    /// LD_LIBRARY_PATH, the directories in its configuration, and the default directories.
    fn libraries(&self) -> Vec<PathBuf> {
        let mut places: Vec<PathBuf> = split(&self.library_path).collect();
        self.configured(Path::new("/etc/ld.so.conf"), &mut places, 0);
        places.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from));
        places
    }

    /// Adds the directories in a configuration file of the dynamic linker, and in the files that it includes.
    fn configured(&self, file: &Path, places: &mut Vec<PathBuf>, depth: usize) {
        /// Without a limit, a file that includes itself would never end.
        const DEPTH: usize = 8;
        let Ok(text) = fs::read_to_string(self.path(file)) else { return };
        for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
            match line.strip_prefix("include") {
                Some(pattern) if pattern.starts_with(char::is_whitespace) && depth < DEPTH => {
                    let pattern = self.root.join("etc").join(pattern.trim().trim_start_matches("/etc/"));
                    let Some(pattern) = pattern.to_str() else { continue };
                    for included in glob::glob(pattern).into_iter().flatten().flatten() {
                        let included = included.strip_prefix(&self.root).unwrap_or(&included);
                        self.configured(&Path::new("/").join(included), places, depth + 1);
                    }
                }
                _ if line.starts_with('/') => places.push(line.into()),
                _ => {}
            }
        }
    }
}

/// Returns the absolute directories in the value of a variable such as PATH.
fn split(variable: &Option<OsString>) -> impl Iterator<Item = PathBuf> {
    std::env::split_paths(variable.as_deref().unwrap_or_default()).filter(|place| place.is_absolute())
}

/// Returns whether a name selects a file: `libc.so.6` selects itself, and `libc` selects `libc.so.6` and
/// `libc-2.31.so`.
fn is_called(name: &str, file: &OsStr) -> bool {
    let Some(rest) = file.as_bytes().strip_prefix(name.as_bytes()) else { return false };
    let versioned = rest.strip_prefix(b"-").is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_digit));
    rest.is_empty() || rest.starts_with(b".so.") || rest == b".so" || versioned && rest.ends_with(b".so")
}

/// The kind of a file, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A program or library for this machine.
    Native,
    /// A script.
    Script,
    /// Something else, such as a text file for the linker, a library for another machine, or a 32-bit library.
    Other,
}

impl Kind {
    fn detect(path: &Path) -> Option<Kind> {
        let head = |path: &Path| -> Option<[u8; 20]> {
            let mut head = [0; 20];
            let mut file = perf_prof_system::file::open_regular(path).ok()?;
            // If the file is shorter, the rest stays zero.
            let _ = file.read(&mut head).ok()?;
            Some(head)
        };
        // Returns class, byte order and machine (e_ident and e_machine).
        let format = |head: &[u8; 20]| (head[4], head[5], [head[18], head[19]]);
        let found = head(path)?;
        Some(match &found {
            [b'#', b'!', ..] => Kind::Script,
            [0x7f, b'E', b'L', b'F', ..]
                if head(Path::new("/proc/self/exe")).is_none_or(|own| format(&own) == format(&found)) =>
            {
                Kind::Native
            }
            _ => Kind::Other,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Returns a directory with a few files, which serves as the root of a process.
    fn root() -> (tempfile::TempDir, View) {
        let directory = tempfile::tempdir().unwrap();
        let at = |path: &str| directory.path().join(path);
        for path in ["etc/ld.so.conf.d", "usr/lib/x", "bin", "usr/bin", "opt/app", "etc/alternatives"] {
            fs::create_dir_all(at(path)).unwrap();
        }
        let mut own = [0; 64];
        fs::File::open("/proc/self/exe").unwrap().read_exact(&mut own).unwrap();
        let mut other = own;
        other[4] ^= 3;
        fs::write(at("etc/ld.so.conf"), "# first\ninclude ld.so.conf.d/*.conf\ninclude /etc/ld.so.conf\n").unwrap();
        fs::write(at("etc/ld.so.conf.d/a.conf"), "/usr/lib/x # libraries\nhwcap 0 nosegneg\n").unwrap();
        for file in ["usr/lib/x/libx.so.1.2", "usr/lib/x/libtwo.so.1", "usr/lib/x/libtwo.so.2", "opt/app/libmine.so"] {
            fs::write(at(file), own).unwrap();
        }
        fs::write(at("usr/lib/x/libx.so"), "GROUP ( libx.so.1 )").unwrap();
        fs::write(at("usr/lib/x/libold.so.1"), other).unwrap();
        symlink("libx.so.1.2", at("usr/lib/x/libx.so.1")).unwrap();
        symlink("/opt/app/libmine.so", at("etc/alternatives/mine")).unwrap();
        symlink("/etc/alternatives/mine", at("usr/lib/x/libalternative.so.3")).unwrap();
        symlink("loop", at("usr/lib/x/loop")).unwrap();
        for script in ["bin/tool", "bin/only"] {
            fs::write(at(script), "#!/bin/sh\n").unwrap();
        }
        fs::write(at("usr/bin/tool"), own).unwrap();
        let mapped = |path: &str| Mapped { path: path.into(), file: "/no/such/file".into(), is_code: true };
        let view = View {
            root: directory.path().into(),
            mapped: ["/opt/app/libmine.so", "/opt/app/gone.so"].map(mapped).into(),
            path: Some("relative:/bin:/usr/bin".into()),
            library_path: None,
        };
        (directory, view)
    }

    #[test]
    fn names_are_looked_up_as_the_process_sees_them() {
        let (directory, view) = root();
        let found = |name: &str| {
            let found = view.find(name).map_or_else(|error| error.to_string(), |path| path.display().to_string());
            found.replace(directory.path().to_str().unwrap(), "ROOT")
        };
        assert_eq!(found("libx.so.1"), "ROOT/usr/lib/x/libx.so.1.2");
        assert_eq!(found("libx"), "ROOT/usr/lib/x/libx.so.1.2");
        assert_eq!(found("libmine"), "ROOT/opt/app/libmine.so");
        assert_eq!(found("libalternative"), "ROOT/opt/app/libmine.so");
        assert_eq!(found("tool"), "ROOT/usr/bin/tool");
        assert_eq!(found("only"), "ROOT/bin/only is a script; give the program that runs it");
        assert_eq!(
            found("libtwo"),
            "libtwo may be ROOT/usr/lib/x/libtwo.so.1 or ROOT/usr/lib/x/libtwo.so.2; give the path of one of them"
        );
        for name in ["gone.so", "libold", "loop", "lib"] {
            assert_eq!(
                found(name),
                format!("found no program or library {name} in PATH or the dynamic linker's folders; give its path")
            );
        }
        assert_eq!(found("/opt/app/libmine.so"), "ROOT/opt/app/libmine.so");
        assert_eq!(found("/opt/../../opt/app/../app/libmine.so"), "ROOT/opt/app/libmine.so");
        assert_eq!(
            found("/no/such"),
            "cannot open ROOT/no/such: No such file or directory (os error 2); for a path in a container, select a process of the container with -p"
        );
    }

    #[test]
    fn lines_of_maps() {
        let parsed = |line: &str| {
            let mapped = Mapped::parse(line.as_bytes(), Path::new("/m"))?;
            assert!(mapped.is_code);
            Some(format!("{} {}", mapped.path.display(), mapped.file.display()))
        };
        let line = "7f00-7f10 r-xp 00001000 fe:00 77                         /a b/libx.so.1";
        assert_eq!(parsed(line).unwrap(), "/a b/libx.so.1 /m/7f00-7f10");
        assert_eq!(parsed(&format!("{line} (deleted)")).unwrap(), "/a b/libx.so.1 /m/7f00-7f10");
        for line in ["7f00-7f10 rw-p 00000000 00:00 0", "7ffd-7ffe r-xp 00000000 00:00 0    [vdso]", ""] {
            assert_eq!(parsed(line), None);
        }
    }

    #[test]
    fn paths_are_unchanged_in_the_same_mount_namespace() {
        let this = std::process::id();
        let path = find("libc", &[this, this]).unwrap();
        assert!(path.is_absolute() && !path.starts_with("/proc"), "{}", path.display());
        assert_eq!(find("/etc/passwd", &[this]).unwrap(), Path::new("/etc/passwd"));
        assert!(is_same(&find("libc", &[]).unwrap(), &path));
    }
}
