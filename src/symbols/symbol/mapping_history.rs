//! The history of one process's mappings: which file was mapped at which address, and when. This module reads no files.

use std::{sync::Arc, time::Instant};

use rustc_hash::FxHashMap;

use super::{
    mapping_index::{MAPPING_BYTES, Mappings},
    maps::{Backing, Mapping},
};

/// A file that a process has mapped. All mappings of the file refer to the same object.
#[derive(Debug)]
pub struct MappedFile {
    /// The unique number of the file.
    pub id: u64,
    /// The properties that distinguish the file from others.
    pub key: FileKey,
    /// The path, or a name such as `[vdso]` or `//anon`, as shown to users.
    pub dso: Arc<str>,
    /// The kind of memory.
    pub backing: Backing,
}

impl MappedFile {
    /// Returns the memory that the file takes, in bytes. The key counts twice, because the table of files contains a
    /// copy.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of::<FileKey>() + 2 * self.key.path.as_os_str().len() + self.dso.len() + 128
    }
}

/// The properties that distinguish mapped files.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// The path as the process sees it.
    pub path: std::path::PathBuf,
    /// The major and the minor number of the device.
    pub device: (u32, u32),
    /// The inode number; 0 if not known.
    pub inode: u64,
    /// The inode's generation; 0 if not known.
    pub generation: u64,
    /// The build id, if the kernel reported it.
    pub build_id: Option<Box<[u8]>>,
    /// Whether the file had been removed when it was mapped, or when /proc/PID/maps was read.
    pub deleted: bool,
    /// Whether the mappings of the file contain code or data. A file that is mapped as both has two keys.
    pub contents: Contents,
}

/// The contents of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Contents {
    /// Code.
    #[default]
    Code,
    /// Memory that cannot be executed.
    Data,
}

impl FileKey {
    /// Returns the key of the file of a mapping.
    pub fn from_mapping(mapping: &Mapping) -> Self {
        Self {
            contents: if mapping.executable { Contents::Code } else { Contents::Data },
            path: mapping.path.clone(),
            device: mapping.device,
            inode: mapping.inode,
            generation: mapping.generation,
            build_id: mapping.build_id.clone(),
            deleted: mapping.deleted,
        }
    }
}

/// A mapping, and the time at which it was made.
#[derive(Clone, Debug)]
pub struct TimedMapping {
    /// The time at which the mapping was made, in ns. For a mapping from /proc/PID/maps, it is the time at which the
    /// process's image started.
    pub time: u64,
    /// The first address of the mapping.
    pub start: u64,
    /// The address after the last address of the mapping.
    pub end: u64,
    /// The offset in the file at which the mapping starts, in bytes.
    pub file_offset: u64,
    /// The file that is mapped.
    pub file: Arc<MappedFile>,
}

impl TimedMapping {
    /// Returns whether the mapping contains an address of the range from `start` to `end`.
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start < end && start < self.end
    }
}

/// The program that a process executes between two calls of exec, with the program's mappings.
#[derive(Clone, Debug)]
pub struct Image {
    /// The id, which is unique among all images of all processes. If earlier mappings of the image turn out to be
    /// wrong, the image gets a new id, because results are cached by the id.
    pub id: u64,
    /// The time at which the process started to execute the image, in ns.
    pub start: u64,
    /// The mappings, sorted by time. After a fork, child and parent share the list until one of the two changes its
    /// mappings.
    pub mappings: Arc<Mappings>,
    /// When /proc/PID/maps was last read for this image.
    pub read: Option<Instant>,
    /// How the process came to execute the image.
    pub origin: ImageOrigin,
}

/// How a process came to execute an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageOrigin {
    /// The process called exec.
    Exec,
    /// The process was created with the image, or the origin of the image is not known.
    Start,
}

/// The mapping that contains an address.
#[derive(Clone, Debug)]
pub struct MappingAt {
    /// The mapping.
    pub mapping: TimedMapping,
    /// The time at which another mapping replaces this mapping at the address, in ns. `u64::MAX` if no mapping replaces
    /// it.
    pub until: u64,
    /// The file mapping that `mapping` has replaced, if `mapping` is anonymous. A process that moves a file's code to
    /// huge pages replaces the mapping in this way.
    pub replaced_file_mapping: Option<TimedMapping>,
}

/// The size of a huge page in bytes. Programs move code to huge pages in units of 2 MiB, on every architecture with
/// huge pages of this level.
const HUGE: u64 = 2 << 20;

/// The maximum number of mappings in an image. Processes need fewer mappings for code. If there are more, the oldest
/// are dropped.
const MAPPINGS_LIMIT: usize = 1 << 16;

impl Image {
    /// Creates an image without mappings.
    pub fn new(id: u64, begin: u64, origin: ImageOrigin) -> Self {
        Self { id, start: begin, mappings: Arc::default(), read: None, origin }
    }

    /// Returns the memory that the list of mappings takes, in bytes; 0 if another image shares the list.
    pub fn own_bytes(&self) -> usize {
        if Arc::strong_count(&self.mappings) > 1 { 0 } else { self.mappings.len() * MAPPING_BYTES }
    }

    /// Adds a mapping. Returns whether it overlaps an earlier mapping that is not anonymous, for example the mapping of
    /// a file.
    pub fn insert(&mut self, known: TimedMapping) -> bool {
        // A process that generates code changes the protection of its memory for each function. Each change causes a
        // record (mprotect_fixup() in mm/mprotect.c). A record that repeats a known mapping is ignored.
        let again = |other: &TimedMapping| {
            (other.start, other.end, other.file.id) == (known.start, known.end, known.file.id)
                && (other.file_offset == known.file_offset || other.file.backing == Backing::Anonymous)
                && other.time <= known.time
        };
        let replaces = {
            let overlapped = self.mappings.overlapping(known.start, known.end);
            let mut latest_first = overlapped.before(self.mappings.len()).map(|at| &self.mappings[at]).peekable();
            if latest_first.peek().is_some_and(|latest| again(latest)) {
                return false;
            }
            latest_first.any(|other| other.file.backing != Backing::Anonymous)
        };
        let mappings = Arc::make_mut(&mut self.mappings);
        if mappings.len() >= MAPPINGS_LIMIT {
            // The oldest mappings are dropped, because most of them were replaced long ago.
            mappings.drop_first(MAPPINGS_LIMIT / 4);
        }
        let at = mappings.partition_point(|other| other.time <= known.time);
        mappings.insert(at, known);
        replaces
    }

    /// Adds the mappings that /proc/PID/maps shows now. Earlier mappings and the times of known mappings are kept,
    /// because /proc/PID/maps does not show them. Returns two values: whether a mapping was new, and whether a new
    /// mapping overlaps an earlier mapping that is not anonymous.
    pub fn merge(&mut self, current: Vec<TimedMapping>) -> (bool, bool) {
        // The mappings in /proc/PID/maps do not overlap each other.
        if self.mappings.is_empty() && current.len() <= MAPPINGS_LIMIT {
            let new = !current.is_empty();
            self.mappings = Arc::new(current.into());
            return (new, false);
        }
        let same = |one: &TimedMapping, other: &TimedMapping| {
            // /proc/PID/maps and records show different names and offsets for anonymous memory.
            one.file.backing == other.file.backing
                && (one.file.backing != Backing::File
                    || one.file_offset == other.file_offset && one.file.key.path == other.file.key.path)
        };
        let mut known_at: FxHashMap<(u64, u64), Vec<usize>> = FxHashMap::default();
        for (at, known) in self.mappings.iter().enumerate() {
            known_at.entry((known.start, known.end)).or_default().push(at);
        }
        // A known mapping is kept, because side-band records contain more about it than /proc/PID/maps: its time and
        // its build id.
        let is_known = |mapping: &TimedMapping| {
            let at = known_at.get(&(mapping.start, mapping.end));
            at.is_some_and(|at| at.iter().any(|&at| same(&self.mappings[at], mapping)))
        };
        let unknown: Vec<TimedMapping> = current.into_iter().filter(|mapping| !is_known(mapping)).collect();
        let (mut new, mut replaces) = (false, false);
        for known in unknown {
            replaces |= self.insert(known);
            new = true;
        }
        (new, replaces)
    }

    /// Returns the mapping that contained `address` at `time`. If there was none, returns the first later mapping that
    /// contains `address`.
    pub fn locate(&self, address: u64, time: u64) -> Option<MappingAt> {
        let covering = self.mappings.overlapping(address, address.checked_add(1)?);
        let later = self.mappings.partition_point(|other| other.time <= time);
        // Mappings from one read of /proc/PID/maps have equal times. Of several mappings with equal times, the last one
        // is used.
        let at = covering.before(later).next().or_else(|| covering.starting_at(later).next())?;
        let until = covering.starting_at(later.max(at + 1)).next().map_or(u64::MAX, |next| self.mappings[next].time);
        let known = &self.mappings[at];
        let below = if known.file.backing == Backing::Anonymous { self.below(at) } else { None };
        Some(MappingAt { mapping: known.clone(), until, replaced_file_mapping: below })
    }

    /// Cuts `found` to the part around `address` that later mappings have not replaced by `time`. Lowers `until` to the
    /// time when the next mapping replaces a part of it. As in perf, if a mapping replaces the middle of another
    /// mapping, two parts of the other mapping are left.
    pub fn cut(&self, found: &mut MappingAt, address: u64, time: u64) {
        let MappingAt { mapping, until, .. } = found;
        let (mut start, mut end) = (mapping.start, mapping.end);
        let first = self.mappings.partition_point(|other| other.time <= mapping.time);
        for at in self.mappings.overlapping(start, end).starting_at(first) {
            let later = &self.mappings[at];
            if later.time > time {
                // The mappings are sorted by time, so no later entry replaces this mapping earlier.
                *until = later.time.min(*until);
                break;
            } else if later.end <= address {
                start = later.end.max(start);
            } else if later.start > address {
                end = later.start.min(end);
            }
        }
        mapping.file_offset = mapping.file_offset.wrapping_add(start - mapping.start);
        (mapping.start, mapping.end) = (start, end);
    }

    /// Returns the file mapping that contains the range of the anonymous mapping at index `at`, or that ends where the
    /// anonymous mapping starts.
    fn below(&self, at: usize) -> Option<TimedMapping> {
        let anonymous = &self.mappings[at];
        if !anonymous.start.is_multiple_of(HUGE) || !anonymous.end.is_multiple_of(HUGE) {
            return None;
        }
        let holds = |known: &&TimedMapping| {
            known.file.backing == Backing::File
                && (known.start <= anonymous.start && anonymous.end <= known.end || known.end == anonymous.start)
        };
        self.mappings[..at].iter().rev().chain(&self.mappings[at + 1..]).find(holds).cloned()
    }
}

/// A process.
#[derive(Debug)]
pub struct Process {
    /// The images, sorted by `start`. The list is never empty.
    pub images: Vec<Image>,
    /// The time at which the main thread exited, in ns. `None` if no exit was reported, or if the process did something
    /// after the reported exit.
    pub exited: Option<u64>,
    /// The value of `Processes::clock` at the last use of this process. The exited processes with the lowest values are
    /// dropped first.
    pub used: u64,
}

/// The maximum number of images of a process. If a process calls exec more often, for example in a loop, its oldest
/// images are dropped.
const IMAGES_LIMIT: usize = 16;

impl Process {
    /// Creates a process whose first image is `image`.
    pub fn new(image: Image) -> Self {
        Self { images: vec![image], exited: None, used: 0 }
    }

    /// Returns the index of the image that the process executed at `time`.
    pub fn image_index_at(&self, time: u64) -> usize {
        self.images.iter().rposition(|image| image.start <= time).unwrap_or(0)
    }

    /// Finds the exec that started the image that the process executed at `time`. Returns the mapping that contained
    /// `address` before this exec.
    ///
    /// A sample during the exec has the user registers of the caller, although the caller's mappings are gone. The
    /// kernel first reports the new comm in begin_new_exec(), then maps the program, and sets the registers last
    /// (load_elf_binary() in fs/binfmt_elf.c).
    pub fn locate_before_exec(&self, address: u64, time: u64) -> Option<MappingAt> {
        let at = self.image_index_at(time);
        let image = &self.images[at];
        if image.origin != ImageOrigin::Exec {
            return None;
        }
        let before = self.images[..at].last()?.locate(address, image.start)?;
        // The result is valid only at `time`, because the kernel may report a mapping of the new program at any later
        // time.
        Some(MappingAt { until: time.saturating_add(1), ..before })
    }

    /// Adds an image, unless an image with the same start exists. Records of the new image's mappings may precede the
    /// record of its exec. These mappings were added to the previous image, although their times are not before the
    /// start of the new image. They are moved to the new image, and the previous image gets the id `renewed`.
    pub fn add_image(&mut self, mut image: Image, renewed: u64) {
        let at = self.images.partition_point(|other| other.start <= image.start);
        if at > 0 && self.images[at - 1].start == image.start && image.start != 0 {
            return;
        }
        // If the start of the new image is not known, it is not known either which mappings belong to the image.
        let before = if image.start == 0 { None } else { self.images[..at].last_mut() };
        if let Some(before) = before {
            let own = before.mappings.partition_point(|known| known.time < image.start);
            if own < before.mappings.len() {
                before.id = renewed;
                for known in Arc::make_mut(&mut before.mappings).split_off(own) {
                    image.insert(known);
                }
            }
        }
        self.images.insert(at, image);
        if self.images.len() > IMAGES_LIMIT {
            self.images.remove(0);
        }
    }

    /// Returns the image for a mapping that was made at `time`. If all images started after `time`, the image of the
    /// mapping has not been reported yet, and `new` creates it.
    pub fn image_for_mapping(&mut self, time: u64, new: impl FnOnce() -> Image) -> &mut Image {
        if self.images.len() < IMAGES_LIMIT && self.images.iter().all(|image| time < image.start) {
            self.images.insert(0, new());
        }
        let at = self.image_index_at(time);
        &mut self.images[at]
    }

    /// Returns the number of mappings in all images.
    pub fn mappings(&self) -> usize {
        self.images.iter().map(|image| image.mappings.len()).sum()
    }
}
