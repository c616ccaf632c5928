//! A recording in a directory. The records of each ring are in a separate file: `data.0`, `data.1` and so on. The file
//! `data` contains everything else. Files of rings may be missing.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use perf_prof_format::{
    abi::perf_data::{FIRST_USER_RECORD_TYPE, PERF_RECORD_ID_INDEX},
    record::RECORD_HEADER,
};

use super::feed::{Next, RecordReader};
use crate::{error::PerfDataError, format::bytes::ByteReader};

/// Returns the files of rings by number. `data.007` is ignored, because it would have the same number as `data.7`.
pub(crate) fn files(path: &Path) -> io::Result<BTreeMap<u64, PathBuf>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        let number = file.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("data."));
        let ring = |text: &str| text.parse().ok().filter(|number: &u64| number.to_string() == text);
        if let Some(number) = number.and_then(ring) {
            files.insert(number, file);
        }
    }
    Ok(files)
}

/// Returns the number of rings that were recorded. Returns `None` if the recording does not state this number. perf
/// (since 6.0) and `perf-prof record` state the number in an id index at the start of a recording.
pub(crate) fn rings(records: &mut RecordReader) -> Result<Option<u64>, PerfDataError> {
    let mut rings = None;
    while let Next::Record(size) = records.next()? {
        let order = records.order;
        let mut read = ByteReader::new(records.peek(size), order);
        let kind = read.u32().unwrap_or(0);
        // A long id index is split into several records. After perf's own records come the records of the kernel.
        if kind == PERF_RECORD_ID_INDEX {
            let last = last_ring(&mut read);
            rings = rings.max(last.map(|last| last.saturating_add(1)));
        } else if kind < FIRST_USER_RECORD_TYPE || rings.is_some() {
            break;
        }
        records.advance(size);
    }
    Ok(rings)
}

/// Returns the highest ring number in an id index. Each entry of the index has four numbers: id, ring, CPU, thread.
fn last_ring(read: &mut ByteReader<'_>) -> Option<u64> {
    read.read_bytes(RECORD_HEADER - 4)?;
    let count = read.u64()?;
    let mut last = None;
    for _ in 0..count {
        let Some([_, ring, _, _]) = (|| Some([read.u64()?, read.u64()?, read.u64()?, read.u64()?]))() else { break };
        last = last.max(Some(ring));
    }
    last
}

/// Returns a warning that lists the missing ring files. A file is missing if its number is below the highest number of
/// an existing file, or below the number of rings.
pub(crate) fn missing_files_warning<T>(name: &str, files: &BTreeMap<u64, T>, rings: Option<u64>) -> Option<String> {
    const SHOWN: usize = 8;
    let there = files.last_key_value().map_or(0, |(&last, _)| last.saturating_add(1));
    let missing: u64 = there.max(rings.unwrap_or(0)) - files.len() as u64;
    let numbers = (0..).filter(|number| !files.contains_key(number)).take(missing.min(SHOWN as u64) as usize);
    let mut names = numbers.map(|number| format!("data.{number}")).collect::<Vec<_>>().join(", ");
    if missing > SHOWN as u64 {
        names += &format!(" and {} more", missing - SHOWN as u64);
    }
    let (is, them) = if missing == 1 { ("is", "it") } else { ("are", "them") };
    (missing != 0).then(|| format!("{name} is incomplete: {names} {is} missing; the events in {them} are lost"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        format::{bytes::ByteOrder, header::Section},
        input::feed::FileFeed,
    };

    #[test]
    fn only_the_canonical_number_names_a_ring_file() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["data", "data.7", "data.07", "data.007", "data.+7", "data.0", "data.00", "data.", "data.7x"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let found = files(folder.path()).unwrap();
        let found: Vec<_> = found.iter().map(|(&number, file)| (number, fs::read_to_string(file).unwrap())).collect();
        assert_eq!(found, [(0, "data.0".to_owned()), (7, "data.7".to_owned())]);
    }

    #[test]
    fn missing_files_are_named() {
        let said = |files: &[u64], rings: Option<u64>| {
            missing_files_warning("DIR", &files.iter().map(|&number| (number, ())).collect(), rings)
        };
        let of = |what: &str| Some(format!("DIR is incomplete: {what}"));
        assert_eq!(said(&[], None), None);
        assert_eq!(said(&[0, 1, 2], None), None);
        assert_eq!(said(&[0, 1, 2], Some(2)), None);
        assert_eq!(said(&[0, 2], None), of("data.1 is missing; the events in it are lost"));
        assert_eq!(said(&[0, 2], Some(4)), of("data.1, data.3 are missing; the events in them are lost"));
        assert_eq!(said(&[], Some(1)), of("data.0 is missing; the events in it are lost"));
        let eight = "data.0, data.1, data.2, data.3, data.4, data.5, data.6, data.7";
        let most = format!("{eight} and {} more are missing; the events in them are lost", u64::MAX - 9);
        assert_eq!(said(&[u64::MAX], None), of(&most));
    }

    #[test]
    fn the_list_of_ids_tells_how_many_rings_there_were() {
        for big in [false, true] {
            let order = ByteOrder::from_big_endian_flag(big);
            let u64s = |value: u64| if big { value.to_be_bytes() } else { value.to_le_bytes() };
            let record = |kind: u8, words: &[u64]| {
                let size = 8 + 8 * words.len() as u8;
                let header = if big { [0, 0, 0, kind, 0, 0, 0, size] } else { [kind, 0, 0, 0, 0, 0, size, 0] };
                [&header[..], words.iter().flat_map(|&word| u64s(word)).collect::<Vec<_>>().as_slice()].concat()
            };
            let rings = |records: &[Vec<u8>]| {
                let bytes = records.concat();
                let section = Section { offset: 0, size: bytes.len() as u64 };
                let feed = FileFeed::new(Arc::new(bytes), section);
                rings(&mut RecordReader::new("x", order, Box::new(feed))).unwrap()
            };
            let list = record(69, &[2, 70, 0, 0, u64::MAX, 71, 3, 3, u64::MAX]);
            let (other, kernels) = (record(82, &[]), record(3, &[0]));
            assert_eq!(rings(&[other.clone(), list.clone(), other.clone()]), Some(4));
            assert_eq!(rings(&[list.clone(), record(69, &[1, 72, 8, 0, 0])]), Some(9));
            assert_eq!(rings(&[other, kernels, list.clone()]), None);
            // The id index states an impossible number of entries.
            assert_eq!(rings(&[record(69, &[u64::MAX, 70, 5, 0, 0, 71, 6])]), Some(6));
            assert_eq!(rings(&[record(69, &[])]), None);
        }
    }
}
