//! Block devices on files.

use std::{path::Path, process::Command};

use super::{
    machine::{Need, skip},
    run::stdout,
};

/// The path of a block device, which is removed when this value is dropped.
pub struct LoopDevice(pub String);

impl LoopDevice {
    /// Creates a device on a file.
    pub fn new(file: &Path) -> LoopDevice {
        match Command::new("losetup").args(["--find", "--show"]).arg(file).output() {
            Ok(made) if made.status.success() => LoopDevice(stdout(&made).trim().to_owned()),
            Ok(made) => skip(Need::LoopDevices, String::from_utf8_lossy(&made.stderr)),
            Err(error) => skip(Need::LoopDevices, format!("losetup: {error}")),
        }
    }

    /// Returns the minor number of the device. Its major number is 7.
    pub fn minor(&self) -> u32 {
        self.0.strip_prefix("/dev/loop").unwrap().parse().unwrap()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}
