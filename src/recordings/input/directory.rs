//! A recording in a directory. The records of each ring are in a separate file: `data.0`, `data.1` and so on. The file
//! `data` contains everything else. Files of rings may be missing.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

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
    use super::*;

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
}
