//! Converts attrs to the bytes that are written into recordings.

use perf_prof_format::abi::perf_event_attr;
use perf_prof_system::perf::attr_bytes;

/// The sizes of the attr in different kernel versions. The first size is the one that every perf since 4.1 can read
/// (PERF_ATTR_SIZE_VER5).
const SIZES: [usize; 5] = [112, 120, 128, 136, size_of::<perf_event_attr>()];

/// Returns the smallest attr size that is at least `least` and contains all members that are set in these attrs. A
/// smaller size is better, because perf refuses an attr that is larger than the largest attr that it knows.
pub(super) fn common_size<'a>(attrs: impl Iterator<Item = &'a perf_event_attr>, least: usize) -> usize {
    let used = |attr| attr_bytes(attr).iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let used = attrs.map(used).max().unwrap_or(0).max(least);
    SIZES.into_iter().find(|&size| size >= used).unwrap_or(SIZES[SIZES.len() - 1])
}

/// Returns the first `size` bytes of an attr. The member `size` of the attr is set to `size`.
pub(super) fn sized(attr: &perf_event_attr, size: usize) -> Vec<u8> {
    let stated = perf_event_attr { size: size as u32, ..*attr };
    attr_bytes(&stated)[..size].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_the_smallest_that_holds_all() {
        let plain = perf_event_attr { type_: 1, ..Default::default() };
        let late = perf_event_attr { config3: 7, ..plain };
        assert_eq!(common_size([&plain].into_iter(), 0), 112);
        assert_eq!(common_size([&plain].into_iter(), 128), 128);
        assert_eq!(common_size([&plain, &late].into_iter(), 0), 136);
        let bytes = sized(&plain, 112);
        assert_eq!((bytes.len(), &bytes[..8]), (112, &[1, 0, 0, 0, 112, 0, 0, 0][..]));
    }
}
