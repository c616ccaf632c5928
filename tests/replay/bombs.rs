//! Small recordings that expand when they are decompressed: some hundred KB become half a gigabyte.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use perf_prof_format::abi::PERF_RECORD_SAMPLE;
use tempfile::TempDir;

use super::{hostile::compressed_records, made::NATIVE};

/// What is large in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bomb {
    /// Records of 64 KiB. Each has a different `next_pid`, which is no record's `prev_pid`.
    Records,
    /// Half a million small records with different `number`s.
    Keys,
    /// Different texts of 60 KB.
    Texts,
}

/// The event of all bombs.
pub const EVENT: &str = "sys:e";

const FORMAT: &str = "name: e\nID: 374\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:int prev_pid;\toffset:8;\tsize:4;\tsigned:1;\n\
    \tfield:int next_pid;\toffset:12;\tsize:4;\tsigned:1;\n\
    \tfield:u64 number;\toffset:16;\tsize:8;\tsigned:0;\n\
    \tfield:__data_loc char[] text;\toffset:24;\tsize:4;\tsigned:1;\n\n\
    print fmt: \"%d\", REC->next_pid\n";

impl Bomb {
    /// Returns the number of records.
    pub fn records(self) -> u64 {
        match self {
            Bomb::Records | Bomb::Texts => 8_000,
            Bomb::Keys => 500_000,
        }
    }

    /// Returns the path of the recording, which is made once for all tests.
    pub fn path(self) -> PathBuf {
        static MADE: [OnceLock<TempDir>; 3] = [const { OnceLock::new() }; 3];
        let folder = MADE[self as usize].get_or_init(|| {
            let folder = TempDir::new().unwrap();
            self.write(&folder.path().join("bomb.data"));
            folder
        });
        folder.path().join("bomb.data")
    }

    fn write(self, path: &Path) {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        for number in 1..=self.records() {
            encoder.write_all(&self.record(number)).unwrap();
        }
        let tracing = NATIVE.tracing_data_of(b"sys\0", 1, &[NATIVE.u64(FORMAT.len() as u64), FORMAT.into()].concat());
        fs::write(path, NATIVE.file_with(tracing, &compressed_records(&encoder.finish().unwrap()))).unwrap();
    }

    fn record(self, number: u64) -> Vec<u8> {
        let (text, padding) = match self {
            Bomb::Records => (Vec::new(), 65_400),
            Bomb::Keys => (Vec::new(), 8),
            Bomb::Texts => (format!("{number:08}{}", "x".repeat(60_000)).into_bytes(), 8),
        };
        let place = NATIVE.u32(32 | (text.len() as u32 + 1) << 16);
        let padding = vec![0; (text.len() + padding).next_multiple_of(8) - text.len()];
        let begin = [NATIVE.u32(0x176), NATIVE.u32(7), NATIVE.u32(u32::MAX), NATIVE.u32(number as u32)].concat();
        let raw = [begin, NATIVE.u64(number), place, NATIVE.u32(0), text, padding].concat();
        // The record contains no call chain.
        let members = [NATIVE.trailer(number, 50), NATIVE.u64(0), NATIVE.u32(raw.len() as u32 + 4), raw, vec![0; 4]];
        NATIVE.record(PERF_RECORD_SAMPLE, 2, &members)
    }
}
