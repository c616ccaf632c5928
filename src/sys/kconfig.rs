//! How the running kernel was built: values of its configuration.

use std::{
    fs::{self, File},
    io::Read,
};

use flate2::read::GzDecoder;

/// The value of `CONFIG_HZ`, timer ticks per second. No system call tells it: `sysconf(_SC_CLK_TCK)` is USER_HZ.
pub fn hz() -> Option<u32> {
    let text = own_copy().or_else(boot_copy)?;
    text.lines().find_map(|line| line.strip_prefix("CONFIG_HZ=")?.parse().ok())
}

/// The kernel's own copy (CONFIG_IKCONFIG_PROC).
fn own_copy() -> Option<String> {
    let mut text = String::new();
    GzDecoder::new(File::open("/proc/config.gz").ok()?).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The copy that distributions install beside the kernel.
fn boot_copy() -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    fs::read_to_string(format!("/boot/config-{}", release.trim())).ok()
}
