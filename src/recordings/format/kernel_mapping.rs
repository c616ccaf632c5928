//! The mapping of the recorded kernel, which perf writes before the mappings of processes.

use perf_prof_format::abi::{
    PERF_RECORD_MISC_MMAP_BUILD_ID, PERF_RECORD_MMAP, PERF_RECORD_MMAP2, perf_data::HOST_KERNEL_ID,
};

use super::bytes::{ByteOrder, ByteReader};

/// The address range and the build id of the recorded kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelMapping {
    /// The first address of the kernel's code.
    pub start: u64,
    /// The first address after the kernel's code.
    pub end: u64,
    /// The name of the reference symbol, `_text`. Each boot may load the kernel at another address. The difference
    /// between the addresses of the reference symbol in two boots shows how far the kernel was moved.
    pub symbol: String,
    /// The address of the reference symbol.
    pub address: u64,
    /// The kernel's build id, if the recording was made with `--buildid-mmap`.
    pub build_id: Option<Vec<u8>>,
}

/// Returns whether a record is the mapping of the kernel or of a kernel module.
pub(crate) fn is_kernel_mapping(record: &[u8], order: ByteOrder) -> bool {
    let mut read = ByteReader::new(record, order);
    let is_mapping = read.u32().is_some_and(|kind| [PERF_RECORD_MMAP, PERF_RECORD_MMAP2].contains(&kind));
    is_mapping && read.read_bytes(4).is_some() && read.u32() == Some(HOST_KERNEL_ID)
}

impl KernelMapping {
    /// Parses a record in the byte order of the file. Returns `None` for all records other than the mapping of the
    /// kernel.
    pub(crate) fn parse(record: &[u8], order: ByteOrder) -> Option<KernelMapping> {
        if !is_kernel_mapping(record, order) {
            return None;
        }
        let mut read = ByteReader::new(record, order);
        let kind = read.u32()?;
        let misc = read.u16()?;
        // Skips the size, pid and tid.
        read.read_bytes(10)?;
        let (start, size, address) = (read.u64()?, read.u64()?, read.u64()?);
        let mut build_id = None;
        if kind == PERF_RECORD_MMAP2 {
            let id = read.read_bytes(24)?;
            // Skips protection and flags.
            read.read_bytes(8)?;
            let bytes = id[4..].get(..usize::from(id[0])).filter(|bytes| !bytes.is_empty());
            build_id = bytes.filter(|_| misc & PERF_RECORD_MISC_MMAP_BUILD_ID != 0).map(<[u8]>::to_vec);
        }
        let name = read.rest();
        let name = &name[..name.iter().position(|&byte| byte == 0).unwrap_or(name.len())];
        let symbol = String::from_utf8_lossy(name.strip_prefix(b"[kernel.kallsyms]")?).into_owned();
        Some(KernelMapping { start, end: start.saturating_add(size), symbol, address, build_id })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        format::{first_records::FirstRecords, header::Section},
        input::feed::{FileFeed, RecordReader},
    };

    fn record(big: bool, kind: u32, misc: u16, pid: u32, name: &[u8]) -> Vec<u8> {
        let u16s = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let u32s = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let u64s = |value: u64| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let numbers = [0x1000, 0x200, 0x1010].map(u64s).concat();
        let id = if kind == PERF_RECORD_MMAP2 { [&[20, 0, 0, 0][..], &[7; 20], &[0; 8]].concat() } else { Vec::new() };
        let body = [&u32s(pid)[..], &u32s(0), &numbers, &id, name].concat();
        [&u32s(kind)[..], &u16s(misc), &u16s(8 + body.len() as u16), &body].concat()
    }

    fn find(bytes: &[u8], order: ByteOrder) -> Option<KernelMapping> {
        let section = Section { offset: 0, size: bytes.len() as u64 };
        let feed = FileFeed::new(Arc::new(bytes.to_vec()), section);
        FirstRecords::read(&mut RecordReader::new("x", order, Box::new(feed))).unwrap().kernel
    }

    #[test]
    fn the_kernels_own_is_found_in_both_byte_orders() {
        for big in [false, true] {
            let order = ByteOrder::from_big_endian_flag(big);
            let name = b"[kernel.kallsyms]_text\0\0";
            // Long id index records precede the mapping. perf writes such records if there are many events on many
            // CPUs.
            let ids = record(big, 69, 0, 7, &vec![0; 60_000]);
            let module = record(big, PERF_RECORD_MMAP, 1, HOST_KERNEL_ID, b"/lib/modules/x.ko\0");
            let all = [&ids.repeat(8)[..], &module, &record(big, PERF_RECORD_MMAP, 1, HOST_KERNEL_ID, name)].concat();
            let plain =
                KernelMapping { start: 0x1000, end: 0x1200, symbol: "_text".into(), address: 0x1010, build_id: None };
            assert_eq!(find(&all, order).as_ref(), Some(&plain));
            (all.len() - 200..all.len()).for_each(|cut| assert_eq!(find(&all[..cut], order), None));
            let misc = PERF_RECORD_MISC_MMAP_BUILD_ID | 1;
            let identified = record(big, PERF_RECORD_MMAP2, misc, HOST_KERNEL_ID, name);
            let expected = KernelMapping { build_id: Some(vec![7; 20]), ..plain.clone() };
            assert_eq!(find(&identified, order), Some(expected));
            assert_eq!(find(&record(big, PERF_RECORD_MMAP2, 1, HOST_KERNEL_ID, name), order), Some(plain));
            // A mapping after the first record of a task is not found.
            let task = record(big, PERF_RECORD_MMAP, 1, 7, b"/bin/x\0\0");
            assert_eq!(find(&[task, identified].concat(), order), None);
        }
    }
}
