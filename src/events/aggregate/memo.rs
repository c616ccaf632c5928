//! Reads values as words of a key, with a cache for values that are costly to look up.

use std::{hash::Hasher, sync::Arc};

use perf_prof_format::value::Value;
use rustc_hash::{FxHashMap, FxHasher};

use super::{key::Word, texts::Texts};
use crate::event::{
    Frame, StackDetail, UNKNOWN_COMM, folded,
    reader::{Facts, Input, Read},
};

/// The maximum numbers of cached tasks, of call chains, of frames in all call chains together, and of cgroups.
const TASKS: usize = 1 << 14;
const CHAINS: usize = 1 << 14;
const FRAMES: usize = 1 << 20;
const CGROUPS: usize = 1 << 14;

/// A cache of values that are costly to look up. Each table has one cache per run.
#[derive(Default)]
pub struct Memo {
    /// The generation of the table for which the cached indexes of texts are valid (see `Groups`).
    generation: u64,
    /// The name of each thread, and the time for which the name is valid.
    comms: FxHashMap<i32, KnownName>,
    /// The thread whose name was looked up last: the next event often belongs to the same thread.
    last: Option<(i32, KnownName)>,
    /// The latest time at which a name was looked up.
    latest: u64,
    /// The cached call chains. The key is what their texts say, and a hash of the memory addresses of the `Frame`s.
    chains: FxHashMap<(StackDetail, u64), KnownChain>,
    /// The index of each cgroup's path, by the cgroup's id.
    cgroups: FxHashMap<u64, u32>,
    /// The number of frames in `chains`.
    frames: usize,
}

/// A call chain and the index of its text. The cache owns the frames, so no other `Frame` can get one of their memory addresses.
struct KnownChain {
    frames: Vec<Arc<Frame>>,
    text: u32,
}

/// The name of a thread during an interval of time.
#[derive(Clone, Copy)]
struct KnownName {
    /// How many changes of task names were known when this name was looked up (see `Context::task_changes`).
    changes: u64,
    since: u64,
    /// The end of the interval: the next change of the name that was known at the lookup. An event can be added long
    /// after it was read, when later changes are known already.
    until: u64,
    text: u32,
}

impl Memo {
    /// Clears the cache if texts have got new indexes since it was filled.
    #[inline]
    pub(crate) fn check(&mut self, generation: u64) {
        if self.generation != generation {
            *self = Memo { generation, ..Memo::default() };
        }
    }

    #[inline]
    pub(crate) fn word(&mut self, read: &Read, input: &Input<'_>, texts: &mut Texts) -> Word {
        match read {
            Read::Number { at, ty } => match ty.load(input.sample.record, *at) {
                Some(number) if ty.signed => Word::signed(number as i64),
                Some(number) => Word::unsigned(number),
                None => Word::MISSING,
            },
            Read::Comm => Word::text(self.comm(input, texts)),
            Read::Cgroup => Word::text(self.cgroup(input, texts)),
            Read::Stack(detail) => Word::text(self.stack(*detail, input, texts)),
            Read::Event(name) => Word::text(texts.intern(name)),
            Read::Part(part) => match part.of(input) {
                // Not cached: when the span began, the task may have had another name.
                Some((Read::Comm, input)) => Word::text(texts.intern(&input.comm().unwrap_or(UNKNOWN_COMM.to_vec()))),
                Some((read, input)) => self.word(read, &input, texts),
                None => Word::MISSING,
            },
            _ => match read.value(input) {
                Some(Value::Bool(on)) => Word::unsigned(on.into()),
                Some(Value::Int(number)) => Word::signed(number),
                Some(Value::Uint(number)) => Word::unsigned(number),
                Some(Value::Str(text)) => Word::text(texts.intern(text)),
                Some(Value::Bytes(bytes)) => Word::bytes(texts.intern(bytes)),
                Some(Value::Words(bytes)) => Word::words(texts.intern(bytes)),
                None => Word::MISSING,
            },
        }
    }

    fn comm(&mut self, input: &Input<'_>, texts: &mut Texts) -> u32 {
        let named = |comm: Option<Vec<u8>>, texts: &mut Texts| texts.intern(comm.as_deref().unwrap_or(UNKNOWN_COMM));
        let Facts::Run(context) = input.facts else { return named(input.comm(), texts) };
        let (task, time) = (input.sample.task(), input.sample.time());
        let changes = context.task_changes();
        let is_now = |known: &KnownName| known.changes == changes && (known.since..known.until).contains(&time);
        if let Some((last, known)) = &self.last
            && *last == task
            && is_now(known)
        {
            return known.text;
        }
        if let Some(known) = self.comms.get(&task)
            && is_now(known)
        {
            self.last = Some((task, *known));
            return known.text;
        }
        let (comm, until) = context.comm_until(task, time).unzip();
        // Cache the name only if no later event was seen. The name at an earlier time may be wrong for the next events.
        let is_kept = comm.is_some() && time >= self.latest;
        self.latest = self.latest.max(time);
        let text = named(comm, texts);
        if is_kept {
            if self.comms.len() >= TASKS {
                self.comms.clear();
            }
            let until = until.unwrap_or(u64::MAX);
            self.comms.insert(task, KnownName { changes, since: time, until, text });
        }
        text
    }

    fn cgroup(&mut self, input: &Input<'_>, texts: &mut Texts) -> u32 {
        let Facts::Run(context) = input.facts else { return texts.intern(&input.cgroup()) };
        let id = input.sample.cgroup().unwrap_or(0);
        if let Some(known) = self.cgroups.get(&id) {
            return *known;
        }
        // Do not cache a cgroup without a path: perf-prof may learn the path later.
        let Some(path) = context.cgroup_path(id) else { return texts.intern(&input.cgroup()) };
        let text = texts.intern(&path);
        if self.cgroups.len() >= CGROUPS {
            self.cgroups.clear();
        }
        self.cgroups.insert(id, text);
        text
    }

    fn stack(&mut self, detail: StackDetail, input: &Input<'_>, texts: &mut Texts) -> u32 {
        let frames = input.frames();
        let mut hasher = FxHasher::default();
        frames.iter().for_each(|frame| hasher.write_usize(Arc::as_ptr(frame) as usize));
        let key = (detail, hasher.finish());
        if let Some(known) = self.chains.get(&key)
            && known.frames.len() == frames.len()
            && known.frames.iter().zip(&frames).all(|(known, frame)| Arc::ptr_eq(known, frame))
        {
            return known.text;
        }
        let text = texts.intern(folded(&frames, detail).as_bytes());
        if self.chains.len() >= CHAINS || self.frames >= FRAMES {
            self.chains.clear();
            self.frames = 0;
        }
        self.frames += frames.len();
        self.chains.insert(key, KnownChain { frames, text });
        text
    }
}
