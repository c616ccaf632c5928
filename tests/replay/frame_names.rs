//! Recordings whose table of Python functions was made to harm the reader.

use std::time::{Duration, Instant};

use perf_prof_format::abi::{PERF_SAMPLE_TID, PERF_SAMPLE_TIME, perf_data::HEADER_INTERPRETER_FRAMES};

use super::hostile::{Peak, peak};
use crate::harness::{
    made::{Made, MadeAttr, u32s, u64s},
    recording::Folder,
};

/// Returns a recording of one sample with this section.
fn recording(section: Vec<u8>) -> Made {
    let mut made = Made::new(MadeAttr::new(PERF_SAMPLE_TID | PERF_SAMPLE_TIME));
    made.features.push((HEADER_INTERPRETER_FRAMES, section));
    made.sample(0, &[u32s(&[7, 7]), u64s(&[1000])])
}

/// Returns a section with one text, and `count` frames that have it as their name and file.
fn section(version: u32, text: &[u8], count: u32) -> Vec<u8> {
    let head = [u32s(&[version, 0, 1, text.len() as u32]), text.to_vec(), u32s(&[count])].concat();
    let frame = |code: u32| [u32s(&[7, 1, 1, 0, 0, 1]), u64s(&[code.into(), 1, 2, 3, 4])].concat();
    head.into_iter().chain((0..count).flat_map(frame)).collect()
}

/// Opens a recording. Its sample must be read. Returns the messages.
fn read(made: &Made, buffer: &str) -> String {
    let folder = Folder::new();
    let path = made.write(&folder);
    let Peak { status, stdout, said, memory } = peak(&["trace", "--buffer", buffer, "--input", &path]);
    assert!(status == Some(0) && stdout.lines().count() == 1, "{status:?} {stdout} {said}");
    assert!(memory < 256, "{memory} MiB");
    said
}

#[test]
fn many_functions_with_one_long_name_take_little_memory() {
    const MOST: u32 = 1 << 17;
    let longest = [b'x'; 16 << 10];
    assert_eq!(read(&recording(section(1, &longest, MOST)), "256M"), "");
}

#[test]
fn a_table_of_functions_that_cannot_be_read_is_left_out_with_the_reason() {
    let why = |section: Vec<u8>| {
        let said = read(&recording(section), "16M");
        let (_, why) =
            said.split_once("the table of interpreters' frames cannot be read: ").unwrap_or_else(|| panic!("{said}"));
        why.trim_end().to_owned()
    };
    assert_eq!(why(section(1, &vec![b'x'; 1 << 20], 1)), "a name in it is too long");
    assert_eq!(why(section(2, b"f", 1)), "it has another version");
    assert_eq!(why(section(1, b"f", 1 << 17)), "it needs more memory than --buffer allows");
    let mut cut = section(1, b"f", 3);
    cut.pop();
    assert_eq!(why(cut), "it is cut off");
}

#[test]
fn many_events_with_functions_take_little_time() {
    const COUNT: u64 = 400_000;
    let ids = |start: u64| (start..start + COUNT).collect::<Vec<_>>();
    // No event has one of the ids in the section, so each is looked for in vain.
    let made = recording([u32s(&[1, COUNT as u32]), u64s(&ids(1 << 32)), u32s(&[0, 0])].concat());
    let mut file = made.file();
    // The place and the size of the event's ids follow its attr.
    let place = 104 + made.attrs[0].bytes().len();
    let section = u64s(&[file.len() as u64, 8 * COUNT]);
    file[place..place + 16].copy_from_slice(&section);
    file.extend(u64s(&ids(1)));
    let folder = Folder::new();
    let path = folder.write("ids.data", &file);
    let start = Instant::now();
    let Peak { status, said, .. } = peak(&["trace", "--input", path.to_str().unwrap()]);
    assert!(status == Some(0), "{said}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}
