//! The file that a probe names: a path, or the bare name of a program or library, as the traced processes see it. Knows
//! nothing of what is in it but for which machine it is.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fs, io,
    io::Read,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Component, Path, PathBuf},
};

/// Why the file is not known.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A path without a file.
    #[error("cannot open {path}: {error}{}", hint(path))]
    Path {
        /// Which.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// A directory, a device.
    #[error("{path} is no program or library: not a regular file")]
    Irregular {
        /// Which.
        path: String,
    },
    /// A name that is nowhere.
    #[error("no program or library {name} is in PATH or where the dynamic linker looks; write its path")]
    Nowhere {
        /// Which.
        name: String,
    },
    /// A program that is a script.
    #[error("{path} is a script; name the program that runs it")]
    Script {
        /// Which.
        path: String,
    },
    /// A library of which there are several versions.
    #[error("{name} may be {}; write which one", found.join(" or "))]
    Several {
        /// What was asked for.
        name: String,
        /// What there is.
        found: Vec<String>,
    },
    /// Processes that see different files.
    #[error("{name} is another file for process {other} than for process {first}; trace them one by one")]
    Differ {
        /// What was asked for.
        name: String,
        /// A process.
        first: u32,
        /// A process that sees another one.
        other: u32,
    },
}

fn hint(path: &str) -> &'static str {
    match path {
        _ if path.ends_with('/') => "; a path has to be in quotes where a filter follows",
        _ if path.starts_with("/proc/") || !path.starts_with('/') => "",
        _ => "; for a path in a container, name a process in it with -p",
    }
}

/// Finds the file as these processes see it; without any, as we do.
pub(super) fn find(name: &str, processes: &[u32]) -> Result<PathBuf, FileError> {
    // That a process is not there is for the capture to say.
    let mut there = processes.iter().copied().filter(|pid| Path::new(&format!("/proc/{pid}")).exists());
    let Some(first) = there.next() else { return View::own().find(name) };
    let found = View::of(first).find(name)?;
    for other in there {
        if !is_same(&found, &View::of(other).find(name)?) {
            return Err(FileError::Differ { name: name.to_owned(), first, other });
        }
    }
    Ok(found)
}

fn is_same(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    a == b || identity(a).is_some_and(|a| Some(a) == identity(b))
}

/// Whether a path no longer leads to the file that was mapped from it. Who may not look at that may not probe it either.
fn is_replaced(path: &Path, mapped: &Mapped) -> bool {
    mapped.file.exists() && !is_same(path, &mapped.file)
}

/// The files as somebody sees them.
struct View {
    /// What stands in front of an absolute path for us to see the same.
    root: PathBuf,
    /// The files that are mapped.
    mapped: Vec<Mapped>,
    /// `PATH`.
    path: Option<OsString>,
    /// `LD_LIBRARY_PATH`.
    library_path: Option<OsString>,
}

/// A file that a process has mapped.
#[derive(PartialEq)]
struct Mapped {
    /// Where it was, without `root`: another one may be there now.
    path: PathBuf,
    /// What leads to the file itself, whatever its path does.
    file: PathBuf,
}

impl Mapped {
    /// What a line of /proc/PID/maps says. A file ends it with its path, the only thing in it that has a `/`.
    fn parse(line: &[u8], map_files: &Path) -> Option<Mapped> {
        let path = &line[line.iter().position(|&byte| byte == b'/')?..];
        let path = Path::new(OsStr::from_bytes(path.strip_suffix(b" (deleted)").unwrap_or(path)));
        let range = line.split(|&byte| byte == b' ').next()?;
        Some(Mapped { path: path.into(), file: map_files.join(OsStr::from_bytes(range)) })
    }
}

impl View {
    fn own() -> View {
        let variable = std::env::var_os;
        View { root: "/".into(), mapped: Vec::new(), path: variable("PATH"), library_path: variable("LD_LIBRARY_PATH") }
    }

    /// That of a process, which may be in a mount namespace of its own or have another root directory.
    fn of(pid: u32) -> View {
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
            // What is relative is so to our own directory, and the processes' numbers in /proc are those that we see.
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
        let mapped = self.mapped.iter().filter(of_name).map(|mapped| match self.path(&mapped.path) {
            path if is_replaced(&path, mapped) => mapped.file.clone(),
            path => path,
        });
        if let Some(path) = self.one(name, mapped.filter(|path| path.is_file()).collect())? {
            return Ok(path);
        }
        // A script of that name may only start the program, which then comes later in PATH, as pyenv's do.
        let mut script = None;
        for place in split(&self.path) {
            let path = self.path(&place.join(name));
            match Kind::of(&path) {
                Some(Kind::Ours) => return Ok(path),
                Some(Kind::Script) => script = script.or(Some(path)),
                Some(Kind::Other) | None => {}
            }
        }
        for place in self.libraries() {
            let entries = fs::read_dir(self.path(&place)).into_iter().flatten().flatten();
            let named = entries.map(|entry| entry.file_name()).filter(|file| is_called(name, file));
            let exact = if self.path(&place.join(name)).is_file() { Some(name.into()) } else { None };
            let paths = named.filter(|_| exact.is_none()).chain(exact.clone()).map(|file| self.path(&place.join(file)));
            if let Some(path) = self.one(name, paths.filter(|path| Kind::of(path) == Some(Kind::Ours)).collect())? {
                return Ok(path);
            }
        }
        Err(match script {
            Some(script) => FileError::Script { path: script.display().to_string() },
            None => FileError::Nowhere { name: name.to_owned() },
        })
    }

    /// The file as the process has mapped it: an upgrade puts another one at its path, whose code it does not run.
    fn as_mapped(&self, path: PathBuf) -> PathBuf {
        // In another root its links have been followed already.
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

    /// The only one of these files, which may have several names.
    fn one(&self, name: &str, mut paths: Vec<PathBuf>) -> Result<Option<PathBuf>, FileError> {
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

    /// An absolute path as we have to open it. A link is followed as who sees it follows it: an absolute one would lead us
    /// into our own files.
    fn path(&self, path: &Path) -> PathBuf {
        /// As many as the kernel follows (MAXSYMLINKS).
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

    /// Where the dynamic linker looks (ld.so(8)): the variable, what is configured, the directories that it knows.
    fn libraries(&self) -> Vec<PathBuf> {
        let mut places: Vec<PathBuf> = split(&self.library_path).collect();
        self.configured(Path::new("/etc/ld.so.conf"), &mut places, 0);
        places.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from));
        places
    }

    /// The directories in a file of the dynamic linker's configuration and in those that it includes.
    fn configured(&self, file: &Path, places: &mut Vec<PathBuf>, depth: usize) {
        /// A file that includes itself would have no end.
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

/// The absolute directories in a variable.
fn split(variable: &Option<OsString>) -> impl Iterator<Item = PathBuf> {
    std::env::split_paths(variable.as_deref().unwrap_or_default()).filter(|place| place.is_absolute())
}

/// Whether a file is meant by a name: `libc.so.6` by itself and by `libc`, `libc-2.31.so` too.
fn is_called(name: &str, file: &OsStr) -> bool {
    let Some(rest) = file.as_bytes().strip_prefix(name.as_bytes()) else { return false };
    let versioned = rest.strip_prefix(b"-").is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_digit));
    rest.is_empty() || rest.starts_with(b".so.") || rest == b".so" || versioned && rest.ends_with(b".so")
}

/// What a file is by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A program or library of this machine's.
    Ours,
    /// A script.
    Script,
    /// Something else: text for the linker, a library of 32 bits.
    Other,
}

impl Kind {
    fn of(path: &Path) -> Option<Kind> {
        let head = |path: &Path| -> Option<[u8; 20]> {
            let mut head = [0; 20];
            let mut file = crate::sys::file::open_regular(path).ok()?;
            // What is shorter stays zeros.
            let _ = file.read(&mut head).ok()?;
            Some(head)
        };
        // Class, byte order and machine (e_ident and e_machine).
        let format = |head: &[u8; 20]| (head[4], head[5], [head[18], head[19]]);
        let found = head(path)?;
        Some(match &found {
            [b'#', b'!', ..] => Kind::Script,
            [0x7f, b'E', b'L', b'F', ..]
                if head(Path::new("/proc/self/exe")).is_none_or(|own| format(&own) == format(&found)) =>
            {
                Kind::Ours
            }
            _ => Kind::Other,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory with a few files, as the root of a process.
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
        let mapped = |path: &str| Mapped { path: path.into(), file: "/no/such/file".into() };
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
        assert_eq!(found("only"), "ROOT/bin/only is a script; name the program that runs it");
        assert_eq!(
            found("libtwo"),
            "libtwo may be ROOT/usr/lib/x/libtwo.so.1 or ROOT/usr/lib/x/libtwo.so.2; write which one"
        );
        for name in ["gone.so", "libold", "loop", "lib"] {
            assert_eq!(
                found(name),
                format!("no program or library {name} is in PATH or where the dynamic linker looks; write its path")
            );
        }
        assert_eq!(found("/opt/app/libmine.so"), "ROOT/opt/app/libmine.so");
        assert_eq!(found("/opt/../../opt/app/../app/libmine.so"), "ROOT/opt/app/libmine.so");
        assert_eq!(
            found("/no/such"),
            "cannot open ROOT/no/such: No such file or directory (os error 2); for a path in a container, name a process in it with -p"
        );
    }

    #[test]
    fn lines_of_maps() {
        let parsed = |line: &str| {
            let mapped = Mapped::parse(line.as_bytes(), Path::new("/m"))?;
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
    fn a_process_of_our_own_namespace_has_our_paths() {
        let this = std::process::id();
        let path = find("libc", &[this, this]).unwrap();
        assert!(path.is_absolute() && !path.starts_with("/proc"), "{}", path.display());
        assert_eq!(find("/etc/passwd", &[this]).unwrap(), Path::new("/etc/passwd"));
        assert!(is_same(&find("libc", &[]).unwrap(), &path));
    }
}
