//! Block devices, as the kernel reports them in /sys/dev/block.

use std::fs;

/// Returns the numbers of all block devices and partitions, in the kernel's own layout of dev_t (include/linux/kdev_t.h).
pub fn devices() -> Vec<u32> {
    let names = fs::read_dir("/sys/dev/block").into_iter().flatten();
    let number = |name: &str| {
        let (major, minor) = name.split_once(':')?;
        Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
    };
    names.filter_map(|name| number(name.ok()?.file_name().to_str()?)).collect()
}

/// Returns the number of hardware queues of the block device `dev`. `dev` has the kernel's own layout of dev_t
/// (include/linux/kdev_t.h). Returns `None` if there is no such device, or if sysfs lists no hardware queues of the
/// device.
pub fn hardware_queues(dev: u64) -> Option<usize> {
    let (major, minor) = (dev >> 20, dev & 0xf_ffff);
    let queues = fs::read_dir(format!("/sys/dev/block/{major}:{minor}/mq")).ok()?;
    Some(queues.filter(|queue| queue.is_ok()).count())
}
