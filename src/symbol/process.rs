//! One process's mappings through time: what was where when. Knows nothing of files.

use std::{sync::Arc, time::Instant};

use super::maps::{Backing, Mapping};

/// A file that some process mapped: shared by all mappings of it.
#[derive(Debug)]
pub struct MappedFile {
    /// Tells it from others.
    pub id: u64,
    /// What identifies it.
    pub key: FileKey,
    /// The path, or `[vdso]`, `//anon`, as shown to people.
    pub dso: Arc<str>,
    /// What is behind it.
    pub backing: Backing,
}

/// What tells mapped files apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// As the process sees it.
    pub path: std::path::PathBuf,
    /// Major, minor.
    pub device: (u32, u32),
    /// 0 where not known.
    pub inode: u64,
    /// 0 where not known.
    pub generation: u64,
    /// Where the kernel told.
    pub build_id: Option<Box<[u8]>>,
    /// Whether it had been removed when it was mapped or read.
    pub deleted: bool,
}

impl FileKey {
    /// The file of a mapping.
    pub fn of(mapping: &Mapping) -> Self {
        Self {
            path: mapping.path.clone(),
            device: mapping.device,
            inode: mapping.inode,
            generation: mapping.generation,
            build_id: mapping.build_id.clone(),
            deleted: mapping.deleted,
        }
    }
}

/// A mapping, and since when it is known.
#[derive(Clone, Debug)]
pub struct Known {
    /// When it was made.
    pub time: u64,
    /// Its first address.
    pub start: u64,
    /// The address behind its last.
    pub end: u64,
    /// Where in the file it begins.
    pub file_offset: u64,
    /// The file.
    pub file: Arc<MappedFile>,
}

impl Known {
    fn covers(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start < end && start < self.end
    }
}

/// What a process executes between two execs.
#[derive(Clone, Debug)]
pub struct Image {
    /// Unique among all images of all processes; a new one when what was known turned out to be otherwise.
    pub id: u64,
    /// When it began.
    pub begin: u64,
    /// By time. Shared with the processes that were forked off, until one of them changes.
    pub mappings: Arc<Vec<Known>>,
    /// When /proc/PID/maps was last read for it.
    pub read: Option<Instant>,
}

/// Where an address is.
#[derive(Clone, Debug)]
pub struct Located {
    /// The mapping.
    pub known: Known,
    /// Until when that holds: another mapping takes the address then.
    pub until: u64,
    /// What `known`, anonymous memory, took the place of: a file's code that was moved to huge pages looks so.
    pub below: Option<Known>,
}

/// Code is moved to huge pages in units of 2 MiB on every architecture that has them at this level.
const HUGE: u64 = 2 << 20;

/// No process has more pieces of code that matter; what comes beyond is forgotten from the oldest.
const MAPPINGS_LIMIT: usize = 1 << 16;

impl Image {
    /// An image that nothing is known of.
    pub fn new(id: u64, begin: u64) -> Self {
        Self { id, begin, mappings: Arc::default(), read: None }
    }

    /// Adds a mapping. Tells whether it takes addresses that a file had.
    pub fn insert(&mut self, known: Known) -> bool {
        let overlapped = || self.mappings.iter().rev().filter(|other| other.overlaps(known.start, known.end));
        // A process that makes code changes the protection of its memory for each function, and each time there is a
        // record (mprotect_fixup() in mm/mprotect.c).
        let again = |other: &Known| {
            (other.start, other.end, other.file.id) == (known.start, known.end, known.file.id)
                && (other.file_offset == known.file_offset || other.file.backing == Backing::Anonymous)
                && other.time <= known.time
        };
        if overlapped().next().is_some_and(again) {
            return false;
        }
        let replaces = overlapped().any(|other| other.file.backing != Backing::Anonymous);
        let mappings = Arc::make_mut(&mut self.mappings);
        if mappings.len() >= MAPPINGS_LIMIT {
            // What was mapped over completely and long ago is asked for least.
            mappings.drain(..MAPPINGS_LIMIT / 4);
        }
        let at = mappings.partition_point(|other| other.time <= known.time);
        mappings.insert(at, known);
        replaces
    }

    /// Replaces what is known by what /proc/PID/maps says now, but for what it cannot say: when, and what was there
    /// before. Tells whether something was new, and whether that took addresses that a file had.
    pub fn merge(&mut self, current: Vec<Known>) -> (bool, bool) {
        let same = |one: &Known, other: &Known| {
            (one.start, one.end, one.file.backing) == (other.start, other.end, other.file.backing)
                // Anonymous memory is named otherwise here than in records, and has offsets there.
                && (one.file.backing != Backing::File
                    || one.file_offset == other.file_offset && one.file.key.path == other.file.key.path)
        };
        let (mut new, mut replaces) = (false, false);
        for known in current {
            // Side-band knows more of a mapping (its time, its build id) than the text.
            if !self.mappings.iter().any(|other| same(other, &known)) {
                replaces |= self.insert(known);
                new = true;
            }
        }
        (new, replaces)
    }

    /// What was at an address at a time; where nothing was known then, what came first after that.
    pub fn locate(&self, address: u64, time: u64) -> Option<Located> {
        let mut covering = self.mappings.iter().enumerate().filter(|(_, known)| known.covers(address)).peekable();
        let mut found = covering.next()?;
        // Between mappings of one time (read from /proc at once) the later one wins.
        while let Some(next) = covering.next_if(|(_, next)| next.time <= time) {
            found = next;
        }
        let until = covering.next().map_or(u64::MAX, |(_, next)| next.time);
        let (at, known) = found;
        let below = if known.file.backing == Backing::Anonymous { self.below(at) } else { None };
        Some(Located { known: known.clone(), until, below })
    }

    /// The mapping of a file that the anonymous one at `at` took a part of, or goes on from.
    fn below(&self, at: usize) -> Option<Known> {
        let anonymous = &self.mappings[at];
        if !anonymous.start.is_multiple_of(HUGE) || !anonymous.end.is_multiple_of(HUGE) {
            return None;
        }
        let holds = |known: &&Known| {
            known.file.backing == Backing::File
                && (known.start <= anonymous.start && anonymous.end <= known.end || known.end == anonymous.start)
        };
        self.mappings[..at].iter().rev().chain(&self.mappings[at + 1..]).find(holds).cloned()
    }
}

/// A process.
#[derive(Debug)]
pub struct Process {
    /// By begin; never empty.
    pub images: Vec<Image>,
    /// When its main thread exited, if that is known and nothing was heard of the process since.
    pub exited: Option<u64>,
    /// When it was last asked for.
    pub used: u64,
}

/// A process that calls exec more often is a loop of it; its oldest images are forgotten.
const IMAGES_LIMIT: usize = 16;

impl Process {
    /// A process that begins with `image`.
    pub fn new(image: Image) -> Self {
        Self { images: vec![image], exited: None, used: 0 }
    }

    /// The number of the image that was executed at a time.
    pub fn at(&self, time: u64) -> usize {
        self.images.iter().rposition(|image| image.begin <= time).unwrap_or(0)
    }

    /// Begins an image, unless there is one that begins then. What had been told of it before its begin was is in the
    /// image before, which is known by `renewed` once that is taken from it.
    pub fn begin(&mut self, mut image: Image, renewed: u64) {
        let at = self.images.partition_point(|other| other.begin <= image.begin);
        if at > 0 && self.images[at - 1].begin == image.begin && image.begin != 0 {
            return;
        }
        // Without a time nothing tells whose they are.
        let before = if image.begin == 0 { None } else { self.images[..at].last_mut() };
        if let Some(before) = before {
            let own = before.mappings.partition_point(|known| known.time < image.begin);
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

    /// The image of a mapping that was made at a time. One before all images is of an image whose begin was not told yet:
    /// `new` makes that.
    pub fn of_mapping(&mut self, time: u64, new: impl FnOnce() -> Image) -> &mut Image {
        if self.images.len() < IMAGES_LIMIT && self.images.iter().all(|image| time < image.begin) {
            self.images.insert(0, new());
        }
        let at = self.at(time);
        &mut self.images[at]
    }

    /// How many mappings are kept.
    pub fn mappings(&self) -> usize {
        self.images.iter().map(|image| image.mappings.len()).sum()
    }
}
