//! Other users may put links and files at the path of a recording. The recorder must not write into them.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use crate::harness::{
    machine::{Need, needs},
    recorder::{CALL, command},
    wait::EndsThreads,
};

/// Records into `perf.data` in a folder that `prepare` fills first.
fn record_in(options: &[&str], prepare: impl Fn(&Path)) -> (tempfile::TempDir, Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    prepare(dir.path());
    let args = [&["-q", "-e", CALL], options, &["--", "true"]].concat();
    let output = command(&dir, &args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (dir, output.status.code(), said)
}

#[test]
fn a_recording_is_not_written_through_a_link() {
    needs([Need::Tracefs, Need::Perf]);
    for victim in ["kept", ""] {
        for threads in [&[][..], &["--threads"]] {
            let (dir, status, said) = record_in(threads, |dir| {
                fs::write(dir.join("victim"), victim).unwrap();
                symlink("victim", dir.join("perf.data")).unwrap();
            });
            let path = |name: &str| dir.path().join(name);
            assert_eq!((status, said), (Some(0), String::new()));
            assert_eq!(fs::read_to_string(path("victim")).unwrap(), victim);
            let made = fs::symlink_metadata(path("perf.data")).unwrap();
            assert!(if threads.is_empty() { made.is_file() } else { made.is_dir() });
            // The link is renamed like any other earlier recording.
            assert_eq!(fs::read_link(path("perf.data.old")).unwrap(), Path::new("victim"));
        }
    }
    let (dir, status, said) = record_in(&[], |dir| symlink("new", dir.join("perf.data")).unwrap());
    assert_eq!((status, said, dir.path().join("new").exists()), (Some(0), String::new(), false));
}

#[test]
fn a_link_to_a_device_or_an_open_file_is_refused_and_kept() {
    needs([Need::Tracefs, Need::Perf]);
    for target in ["/dev/null", "/proc/self/fd/1"] {
        let (dir, status, said) = record_in(&[], |dir| symlink(target, dir.join("perf.data")).unwrap());
        let why = "it is a symbolic link to something that is not a regular file";
        assert!(status == Some(1) && said.contains(why), "{target}: {said}");
        assert_eq!(fs::read_link(dir.path().join("perf.data")).unwrap(), Path::new(target));
    }
    let (_dir, status, said) = record_in(&["-o", "/dev/null"], |_| {});
    assert_eq!((status, said), (Some(0), String::new()));
}

#[test]
fn only_the_user_can_read_a_recording_whatever_file_was_at_its_place() {
    needs([Need::Tracefs, Need::Perf]);
    for former in [None, Some(""), Some("former")] {
        let (dir, status, said) = record_in(&[], |dir| {
            if let Some(former) = former {
                let path = dir.join("perf.data");
                fs::write(&path, former).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
                // The recording must not be written into a file that also has another name.
                fs::hard_link(&path, dir.join("other")).unwrap();
            }
        });
        assert_eq!((status, said), (Some(0), String::new()));
        let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("perf.data"), 0o600, "{former:?}");
        if let Some(former) = former {
            assert_eq!(fs::read_to_string(dir.path().join("other")).unwrap(), former);
        }
    }
    let (dir, status, said) = record_in(&["--threads"], |_| {});
    assert_eq!((status, said), (Some(0), String::new()));
    let recording = dir.path().join("perf.data");
    assert_eq!(fs::metadata(&recording).unwrap().permissions().mode() & 0o777, 0o700);
    for file in fs::read_dir(&recording).unwrap() {
        assert_eq!(file.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}

/// Moves the recording away and puts links at its path, until `until` is set.
fn swap(dir: &Path, until: &AtomicBool) {
    let path = |name: &str| dir.join(name);
    let mut moved = 0;
    while !until.load(Relaxed) {
        for name in ["perf.data", "perf.data.old"] {
            // Each step fails if the recorder was faster. An attacker has the same problem.
            moved += usize::from(fs::rename(path(name), path(&format!("moved.{moved}"))).is_ok());
            let _ = symlink("victim", path(name));
            let _ = fs::rename(path(name), path(&format!("link.{name}")));
            let _ = symlink("victim/data", path(name));
            let _ = fs::remove_file(path(name));
            let _ = fs::create_dir(path(name));
        }
    }
}

#[test]
fn nothing_is_written_elsewhere_while_another_user_replaces_the_recording_by_links() {
    needs([Need::Tracefs, Need::Perf]);
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    let kept = [("data", "PERFILE2kept"), ("data.0", "kept"), ("data.1", ""), ("perf.data", "kept"), ("other", "kept")];
    fs::create_dir(&victim).unwrap();
    for (name, content) in kept {
        fs::write(victim.join(name), content).unwrap();
    }
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| swap(dir.path(), &ends));
        let _end = EndsThreads(&ends);
        for threads in [&[][..], &["--threads"]].into_iter().cycle().take(30) {
            let args = [&["-q", "-e", CALL], threads, &["--", "true"]].concat();
            let output = command(&dir, &args).output().unwrap();
            // The run succeeds, or fails with a message, depending on which side was faster.
            assert!(output.status.code().is_some_and(|status| status <= 1), "{output:?}");
        }
    });
    let mut found: Vec<String> =
        fs::read_dir(&victim).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    let mut names = kept.map(|(name, _)| name);
    names.sort();
    assert_eq!(found, names);
    for (name, content) in kept {
        assert_eq!(fs::read_to_string(victim.join(name)).unwrap(), content, "{name}");
    }
}
