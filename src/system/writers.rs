//! Checks whether other users can change a file or folder.

use std::{
    env, fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use rustix::process::{getegid, geteuid};

/// The users and groups that are trusted: root, the user of this process, and the user who started it with sudo.
struct Trusted {
    users: [Option<u32>; 3],
    groups: [Option<u32>; 3],
}

impl Trusted {
    fn of_this_process() -> Trusted {
        let (user, group) = (geteuid().as_raw(), getegid().as_raw());
        // sudo sets these variables for a command that it runs as root (sudo(8)). If this process does not run as root,
        // the variables are ignored, because the process has only the rights of its own user.
        let of_sudo = |name| env::var(name).ok().filter(|_| user == 0)?.parse().ok();
        Trusted {
            users: [Some(0), Some(user), of_sudo("SUDO_UID")],
            groups: [Some(0), Some(group), of_sudo("SUDO_GID")],
        }
    }
}

/// Returns whether a user who is not trusted (see `Trusted`) can change the file or folder at `path`. Creating a file
/// in a folder counts as a change of the folder. Returns false if there is no such file.
pub fn others_can_change(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| {
        let trusted = Trusted::of_this_process();
        let mode = found.permissions().mode();
        let by_owner = !trusted.users.contains(&Some(found.uid()));
        let by_group = mode & 0o020 != 0 && !trusted.groups.contains(&Some(found.gid()));
        by_owner || by_group || mode & 0o002 != 0
    })
}

/// Returns whether a user who is not trusted can replace a file in `folder`. In a folder with the sticky bit, such as
/// /tmp, only the owners of the file and of the folder can replace it (rename(2), EPERM).
pub fn others_can_replace(folder: &Path) -> bool {
    let owner_is_trusted = |found: &fs::Metadata| Trusted::of_this_process().users.contains(&Some(found.uid()));
    others_can_change(folder)
        && !fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & 0o1000 != 0 && owner_is_trusted(&found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_all_users_can_write_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for (mode, found) in [(0o600, false), (0o644, false), (0o664, false), (0o646, true), (0o777, true)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(others_can_change(&file), found, "{mode:o}");
        }
        assert!(!others_can_change(&folder.path().join("missing")));
    }
}
