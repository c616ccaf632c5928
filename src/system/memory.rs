//! The memory that this process may still use: the minimum of what the machine, the cgroups of the process, and the
//! limits of the process leave.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{cgroup::unescape, limits, mmap::page_size};

/// Returns the number of bytes that this process can still use without swapping. Returns `None` if the kernel does not
/// report it. If a process uses more than its cgroup allows, the kernel kills the process. If a process uses more than
/// its own limits allow, allocations fail.
pub fn available() -> Option<usize> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let of_machine = of_machine(&read("/proc/meminfo"));
    let of_cgroups = of_cgroups(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
    let of_process = of_process(&read("/proc/self/statm"), limits::memory_limits(), page_size() as u64);
    let least = [of_machine, of_cgroups, of_process].into_iter().flatten().min()?;
    Some(usize::try_from(least).unwrap_or(usize::MAX))
}

/// Returns the default of `--buffer`, in bytes, for the memory that is available now. `--buffer` limits the memory for
/// events that were read and are not delivered yet.
pub fn default_buffer() -> usize {
    share_for_buffer(available())
}

/// Returns the default of `--buffer`, in bytes, if `available` bytes are available: a quarter. The rest is for the
/// script, and for the other programs on the machine or in the cgroup.
pub fn share_for_buffer(available: Option<usize>) -> usize {
    available.map_or(256 << 20, |free| free / 4)
}

/// Returns the number of bytes that new work can use without swapping. `meminfo` is the text of /proc/meminfo.
fn of_machine(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the number of bytes that the limits of this process leave. `RLIMIT_AS` limits the whole address space of the
/// process, `RLIMIT_DATA` limits its private writable memory. `statm` is the text of /proc/self/statm, which counts
/// pages. The first number in `statm` is the address space; the sixth number is data and stack.
fn of_process(statm: &str, limits: limits::MemoryLimits, page: u64) -> Option<u64> {
    let pages: Vec<u64> = statm.split_whitespace().map_while(|pages| pages.parse().ok()).collect();
    let left = |limit: Option<u64>, used: usize| Some(limit?.saturating_sub(pages.get(used).copied()? * page));
    [left(limits.address_space, 0), left(limits.data, 5)].into_iter().flatten().min()
}

/// A version of cgroups. Says how the hierarchy is mounted, and which files of a cgroup contain the limits and the
/// memory in use. See `Documentation/admin-guide/cgroup-v1/memory.rst` and `Documentation/admin-guide/cgroup-v2.rst` in
/// the kernel's sources.
struct Version {
    /// The file system type of the mount.
    mounted_as: &'static str,
    /// A mount option that the hierarchy must have.
    option: Option<&'static str>,
    /// The files of a cgroup that contain limits.
    limits: &'static [&'static str],
    /// The file of a cgroup that contains the memory in use.
    usage: &'static str,
    /// The keys of lines in `memory.stat` that count page cache. The kernel can reclaim this memory.
    reclaimable: [&'static str; 2],
}

const V1: Version = Version {
    mounted_as: "cgroup",
    option: Some("memory"),
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    reclaimable: ["total_inactive_file", "total_active_file"],
};

/// `memory.high` is used as a limit too: above it, the kernel slows down the tasks of a cgroup so much that they hardly
/// run.
const V2: Version = Version {
    mounted_as: "cgroup2",
    option: None,
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    reclaimable: ["inactive_file", "active_file"],
};

/// Returns the number of bytes that the limits of all cgroups of this process leave. `cgroups` is the text of
/// /proc/self/cgroup, and `mounts` is the text of /proc/self/mountinfo.
fn of_cgroups(cgroups: &str, mounts: &str) -> Option<u64> {
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, Path::new(parts.next()?));
        let version = match controllers {
            "" => V2,
            some if some.split(',').any(|controller| controller == "memory") => V1,
            _ => return None,
        };
        let (root, mount) = version.mount(mounts)?;
        // In a container, the mount may show only a part of the hierarchy. A cgroup's path then starts with the root of
        // this part. If the cgroup is outside this part, the path starts with `/..`.
        let folder = path.strip_prefix(&root).map_or(mount.clone(), |below| mount.join(below));
        version.left_in(&folder, &mount)
    };
    cgroups.lines().filter_map(of_line).min()
}

impl Version {
    /// Returns the root of the mounted part of the hierarchy, and the mount point. A line of mountinfo looks like `36
    /// 35 0:31 /folder /place rw - cgroup cgroup rw,memory` (proc_pid_mountinfo(5)).
    fn mount(&self, mounts: &str) -> Option<(PathBuf, PathBuf)> {
        mounts.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let (mut before, mut after) = (before.split(' ').skip(3), after.split(' '));
            let (kind, options) = (after.next()?, after.nth(1)?);
            let is_wanted =
                kind == self.mounted_as && self.option.is_none_or(|own| options.split(',').any(|option| option == own));
            is_wanted.then_some((unescape(before.next()?), unescape(before.next()?)))
        })
    }

    /// Returns the number of bytes that are left in the cgroup `folder` and in all cgroups above it, up to the mount
    /// point.
    fn left_in(&self, folder: &Path, mount: &Path) -> Option<u64> {
        let above = folder.ancestors().take_while(|ancestor| ancestor.starts_with(mount));
        above.filter_map(|folder| self.left_in_one(folder)).min()
    }

    fn left_in_one(&self, folder: &Path) -> Option<u64> {
        let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
        // In version 2, a file contains the word `max` if its limit is not set.
        let limit = self.limits.iter().filter_map(|file| number(file)).min()?;
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let lines = stat.lines().filter_map(|line| line.split_once(' '));
        let reclaimable = lines.filter(|(key, _)| self.reclaimable.contains(key));
        let reclaimable: u64 = reclaimable.filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok()).sum();
        Some(limit.saturating_sub(number(self.usage)?.saturating_sub(reclaimable)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_and_its_processes() {
        assert_eq!(of_machine("MemTotal: 9 kB\nMemAvailable:   8 kB\n"), Some(8192));
        assert_eq!(of_machine(""), None);
        let left =
            |address_space, data| of_process("10 9 8 7 0 4 0\n", limits::MemoryLimits { address_space, data }, 4096);
        assert_eq!(left(None, None), None);
        assert_eq!(left(Some(16 * 4096), None), Some(6 * 4096));
        assert_eq!(left(Some(16 * 4096), Some(5 * 4096)), Some(4096));
        assert_eq!(left(Some(4096), None), Some(0));
    }

    fn cgroup(folder: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(folder).unwrap();
        files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
    }

    #[test]
    fn the_least_of_all_cgroups_above_counts_and_file_pages_are_free() {
        let folder = tempfile::tempdir().unwrap();
        let (v1, v2) = (folder.path().join("v1"), folder.path().join("v 2"));
        let stat = "cache 1\ninactive_file 9\ntotal_inactive_file 30\ntotal_active_file 20\n";
        let of_v1 = |limit: &'static str| {
            [("memory.limit_in_bytes", limit), ("memory.usage_in_bytes", "400"), ("memory.stat", stat)]
        };
        cgroup(&v1, &of_v1("9223372036854771712"));
        cgroup(&v1.join("a"), &of_v1("1000\n"));
        cgroup(&v1.join("a/b"), &of_v1("2000\n"));
        let (current, stat) = (("memory.current", "700\n"), ("memory.stat", "active_file 0\ninactive_file 100\n"));
        cgroup(&v2, &[]);
        cgroup(&v2.join("c"), &[("memory.max", "max\n"), ("memory.high", "1200\n"), current, stat]);
        cgroup(&v2.join("c/d"), &[("memory.max", "max\n"), ("memory.high", "max\n"), current, stat]);
        let place = |path: &Path| path.display().to_string().replace(' ', "\\040");
        let mounts = |root_of_v1: &str| {
            format!(
                "30 1 0:30 / /proc rw - proc proc rw\n\
                 36 30 0:31 / /cpu rw,relatime - cgroup cgroup rw,cpu\n\
                 37 30 0:32 {root_of_v1} {} rw,relatime shared:7 - cgroup cgroup rw,memory\n\
                 38 30 0:33 / {} rw,relatime - cgroup2 cgroup2 rw\n",
                place(&v1),
                place(&v2)
            )
        };
        let left = |cgroups: &str, root: &str| of_cgroups(cgroups, &mounts(root));
        assert_eq!(left("5:cpu:/x\n4:memory:/a/b\n0::/\n", "/"), Some(1000 - 350));
        assert_eq!(left("4:memory:/docker/1/a\n", "/docker/1"), Some(1000 - 350));
        assert_eq!(left("4:memory:/elsewhere\n", "/docker/1"), Some(9223372036854771712 - 350));
        assert_eq!(left("0::/c/d\n", "/"), Some(1200 - 600));
        assert_eq!(left("4:memory:/a\n0::/c\n", "/"), Some(600));
        assert_eq!(left("0::/\n", "/"), None);
        assert_eq!(of_cgroups("4:memory:/a\n", ""), None);
    }
}
