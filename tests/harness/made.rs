//! Recordings of other machines and recorders, made byte by byte in this machine's byte order. They contain one event,
//! unless a test adds others.

use perf_prof_format::abi::{perf_data::*, *};

use super::recording::Folder;

/// The contents of a recording.
#[derive(Clone)]
pub struct Made {
    pub magic: [u8; 8],
    pub attrs: Vec<MadeAttr>,
    /// The feature sections, by their numbers in ascending order.
    pub features: Vec<(u32, Vec<u8>)>,
    pub records: Vec<u8>,
}

/// An event's `perf_event_attr`, as far as tests set it.
#[derive(Clone, Copy)]
pub struct MadeAttr {
    pub kind: u32,
    pub config: u64,
    pub sample_type: u64,
    pub flags: u64,
    pub branch_sample_type: u64,
    pub regs_user: u64,
}

/// The size of an attr up to `sample_stack_user`.
const ATTR: usize = 96;
const FILE_HEADER: usize = 104;

pub fn u32s(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

pub fn u64s(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Returns a text padded to a multiple of 8 bytes, with at least one NUL.
pub fn padded(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize((text.len() + 1).next_multiple_of(8), 0);
    bytes
}

pub fn record(kind: u32, misc: u16, body: &[Vec<u8>]) -> Vec<u8> {
    let body = body.concat();
    [u32s(&[kind]), [misc, 8 + body.len() as u16].map(u16::to_ne_bytes).concat(), body].concat()
}

impl MadeAttr {
    /// Creates a software event whose samples contain the members of `sample_type`.
    pub fn new(sample_type: u64) -> Self {
        let (kind, config) = (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK);
        MadeAttr { kind, config, sample_type, flags: 0, branch_sample_type: 0, regs_user: 0 }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let &MadeAttr { kind, config, sample_type, flags, branch_sample_type, regs_user } = self;
        let mut bytes = [u32s(&[kind, ATTR as u32]), u64s(&[config, 1, sample_type, 0, flags, 0, 0, 0])].concat();
        bytes.extend(u64s(&[branch_sample_type, regs_user]));
        bytes.resize(ATTR, 0);
        bytes
    }
}

impl Made {
    /// Creates a recording without records.
    pub fn new(attr: MadeAttr) -> Self {
        Made { magic: PERF_MAGIC2.to_le_bytes(), attrs: vec![attr], features: Vec::new(), records: Vec::new() }
    }

    /// Adds a feature section that contains a text.
    pub fn text(mut self, feature: u32, text: &str) -> Self {
        let bytes = padded(text);
        self.features.push((feature, [u32s(&[bytes.len() as u32]), bytes].concat()));
        self
    }

    /// Adds a list of files with build ids. Each entry is `misc` and the path.
    pub fn build_ids(mut self, files: &[(u16, &str)]) -> Self {
        let entry =
            |&(misc, path): &(u16, &str)| record(0, misc, &[u32s(&[u32::MAX]), vec![7; 20], vec![0; 4], padded(path)]);
        self.features.push((HEADER_BUILD_ID, files.iter().flat_map(entry).collect()));
        self
    }

    pub fn record(mut self, kind: u32, misc: u16, body: &[Vec<u8>]) -> Self {
        self.records.extend(record(kind, misc, body));
        self
    }

    /// Adds the mapping of the kernel or of a module, without a sample id.
    pub fn kernel_mapping(self, start: u64, len: u64, name: &str) -> Self {
        let numbers = [u32s(&[HOST_KERNEL_ID, 0]), u64s(&[start, len, start])].concat();
        self.record(PERF_RECORD_MMAP, PERF_RECORD_MISC_KERNEL, &[numbers, padded(name)])
    }

    /// Adds a mapping of process 7 (PERF_RECORD_MMAP2).
    pub fn mapping(self, start: u64, len: u64, prot_flags: [u32; 2], name: &str) -> Self {
        let numbers = [u32s(&[7, 7]), u64s(&[start, len, 0]), vec![0; 24], u32s(&prot_flags)].concat();
        self.record(PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER, &[numbers, padded(name)])
    }

    pub fn sample(self, misc: u16, members: &[Vec<u8>]) -> Self {
        self.record(PERF_RECORD_SAMPLE, misc, members)
    }

    /// Returns the whole file.
    pub fn file(&self) -> Vec<u8> {
        let attrs = self.attrs.iter().map(|attr| [attr.bytes(), u64s(&[0, 0])].concat());
        let attrs: Vec<u8> = attrs.collect::<Vec<_>>().concat();
        let data = FILE_HEADER + attrs.len();
        let mut bits = [0u64; 4];
        self.features.iter().for_each(|(feature, _)| bits[*feature as usize / 64] |= 1 << (feature % 64));
        let sections = [FILE_HEADER, ATTR + 16, FILE_HEADER, attrs.len(), data, self.records.len(), 0, 0];
        let mut file = self.magic.to_vec();
        file.extend(u64s(&sections.map(|number| number as u64)));
        file.extend(u64s(&bits));
        file.extend([attrs, self.records.clone()].concat());
        let mut at = file.len() + 16 * self.features.len();
        for (_, section) in &self.features {
            file.extend(u64s(&[at as u64, section.len() as u64]));
            at += section.len();
        }
        self.features.iter().for_each(|(_, section)| file.extend(section));
        file
    }

    /// Returns the recording in pipe format. The attrs have the ids 50, 51 and so on.
    pub fn pipe(&self) -> Vec<u8> {
        let mut pipe = [self.magic.to_vec(), u64s(&[16])].concat();
        for (number, attr) in self.attrs.iter().enumerate() {
            pipe.extend(record(PERF_RECORD_HEADER_ATTR, 0, &[attr.bytes(), u64s(&[50 + number as u64])]));
        }
        for (feature, bytes) in &self.features {
            pipe.extend(record(PERF_RECORD_HEADER_FEATURE, 0, &[u64s(&[(*feature).into()]), bytes.clone()]));
        }
        [pipe, self.records.clone()].concat()
    }

    /// Writes the file into a folder. Returns its path.
    pub fn write(&self, folder: &Folder) -> String {
        folder.write("made.data", &self.file()).to_str().unwrap().to_owned()
    }
}
