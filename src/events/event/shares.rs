//! Adds up samples by task, file and function: as a table of shares, as trees of callers, and as sums that include called
//! functions. Samples with new keys count as `[others]` once the memory is used up.

use std::{borrow::Cow, cmp::Reverse, collections::HashMap, str::FromStr, sync::Arc};

use perf_prof_symbols::symbol::module_name;
use perf_prof_system::budget::{Budget, HeldFor, Holding};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Frame, Origin, UNKNOWN, perf_line::is_generated_code};

/// A key by which samples are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupKey {
    /// The task's name.
    Comm,
    /// The process id.
    Pid,
    /// The thread id.
    Tid,
    /// The CPU.
    Cpu,
    /// The cgroup of the task.
    Cgroup,
    /// The file of the function.
    Dso,
    /// The function.
    Symbol,
}

const NAMES: [(&str, GroupKey); 8] = [
    ("comm", GroupKey::Comm),
    ("pid", GroupKey::Pid),
    ("tid", GroupKey::Tid),
    ("cpu", GroupKey::Cpu),
    ("cgroup", GroupKey::Cgroup),
    ("dso", GroupKey::Dso),
    ("symbol", GroupKey::Symbol),
    ("sym", GroupKey::Symbol),
];

/// The error for an unknown name of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no key `{0}`; the keys are comm, pid, tid, cpu, cgroup, dso, symbol")]
pub struct UnknownKey(String);

impl FromStr for GroupKey {
    type Err = UnknownKey;

    fn from_str(name: &str) -> Result<Self, UnknownKey> {
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, by)| *by).ok_or_else(|| UnknownKey(name.to_owned()))
    }
}

/// What the sums need of a sample.
#[derive(Clone, Copy, Debug)]
pub struct AddedSample<'a> {
    /// The period of the sample. The sums add up periods.
    pub period: u64,
    /// The name of the task.
    pub comm: &'a str,
    /// The process id and the thread id.
    pub ids: (i32, i32),
    /// Its CPU.
    pub cpu: u32,
    /// The path of the task's cgroup; empty if the samples have no cgroup.
    pub cgroup: &'a str,
    /// The frame of the sample's instruction; `None` if the samples have no instruction address.
    pub place: Option<&'a Frame>,
    /// The frames of the call chain, innermost first. The first frame is that of the instruction. Empty if the samples have
    /// no call chain.
    pub chain: &'a [Arc<Frame>],
}

/// What is summed up for callers, besides the functions in which samples were taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallerSums {
    /// Callers have no sums.
    #[default]
    Ignored,
    /// A tree of callers for each line of the table.
    Trees,
    /// For each function: the periods of all samples in the function or in functions that it called, directly or indirectly.
    Children,
}

/// Stands for all keys that did not fit into memory.
pub const OTHERS: &str = "[others]";

/// The memory of a text beyond its own bytes, of a line, and of a caller. Includes the spare capacity of the tables.
const TEXT: usize = 128;
const LINE: usize = 256;
const CALLER: usize = 128;

/// An index into `Shares::texts`, in which each text is stored once.
type TextId = u32;

/// The sums of a line.
#[derive(Clone, Debug, Default)]
struct Sum {
    own: u64,
    with_callees: u64,
    samples: u64,
    callers: Tree,
}

/// The callers of a function, as a tree. The node at index 0 is the function itself.
#[derive(Clone, Debug, Default)]
struct Tree {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    name: TextId,
    weight: u64,
    callers: Vec<usize>,
}

/// Adds up samples.
#[derive(Debug)]
pub struct Shares {
    by: Vec<GroupKey>,
    callers: CallerSums,
    words: FxHashMap<Box<str>, TextId>,
    texts: Vec<Box<str>>,
    sums: FxHashMap<Box<[TextId]>, Sum>,
    samples: u64,
    total: u64,
    /// The number of samples whose keys did not fit into memory.
    others: u64,
    memory: Holding,
}

/// A line of the table, for printing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The text of each key.
    pub keys: Vec<String>,
    /// The sum of the periods of the samples with these keys.
    pub own: u64,
    /// With [`CallerSums::Children`]: the sum of the periods of all samples in this function or in functions that it called.
    /// Otherwise 0.
    pub with_callees: u64,
    /// The number of samples with these keys.
    pub samples: u64,
    /// The callers of the line's function, the largest weight first.
    pub callers: Vec<Caller>,
}

/// A caller in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The function's name.
    pub name: String,
    /// The sum of the periods of the samples in which this caller called the function, directly or through the callers
    /// between them in the tree.
    pub weight: u64,
    /// The callers of this caller.
    pub callers: Vec<Caller>,
}

impl Shares {
    /// Creates an empty table. The memory of the table comes from `budget`.
    pub fn new(by: &[GroupKey], callers: CallerSums, budget: &Budget) -> Shares {
        let (by, memory) = (by.to_vec(), budget.hold(HeldFor::Tables));
        let (words, sums) = (FxHashMap::from_iter([(OTHERS.into(), 0)]), FxHashMap::default());
        Shares { by, callers, words, texts: vec![OTHERS.into()], sums, samples: 0, total: 0, others: 0, memory }
    }

    /// Returns the number of samples whose keys did not fit into memory.
    pub fn others(&self) -> u64 {
        self.others
    }

    /// Takes `bytes` from the budget. Returns false if the budget does not have them.
    fn has_taken(&mut self, bytes: usize) -> bool {
        let has_room = self.memory.has_room(bytes);
        if has_room {
            self.memory.set(self.memory.bytes() + bytes);
        }
        has_room
    }

    /// Returns the sum for a key. If the key does not fit into memory, returns the sum for `[others]`.
    fn sum(&mut self, key: Box<[TextId]>) -> &mut Sum {
        let is_known = self.sums.contains_key(&key) || self.has_taken(LINE);
        let key = if is_known { key } else { vec![0; key.len()].into() };
        self.sums.entry(key).or_default()
    }

    /// Returns the number of added samples.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the sum of the periods of all added samples.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Adds a sample.
    pub fn add(&mut self, added: &AddedSample<'_>) {
        self.samples += 1;
        self.total = self.total.saturating_add(added.period);
        let key = self.key(added, added.place);
        let sum = self.sum(key.clone());
        sum.own = sum.own.saturating_add(added.period);
        sum.samples += 1;
        self.others += u64::from(key.contains(&0) || !self.sums.contains_key(&key));
        match self.callers {
            CallerSums::Ignored => {}
            CallerSums::Trees => {
                // Skip the first frame: it is the function of the line itself.
                let names: Vec<TextId> = added.chain.iter().skip(1).map(|frame| self.word(function(frame))).collect();
                let room = (self.memory.limit() - self.memory.bytes().min(self.memory.limit())) / CALLER;
                let new = self.sum(key).callers.add(&names, added.period, room);
                self.memory.set(self.memory.bytes() + CALLER * new);
            }
            CallerSums::Children => {
                // A function that calls itself counts once per sample.
                let mut seen = FxHashSet::from_iter([key]);
                for frame in added.chain {
                    seen.insert(self.key(added, Some(frame)));
                }
                for key in seen {
                    let sum = self.sum(key);
                    sum.with_callees = sum.with_callees.saturating_add(added.period);
                }
            }
        }
    }

    /// Renames tasks: `names` maps old names to new ones. Lines that get the same keys become one line.
    pub fn rename_tasks(&mut self, names: &HashMap<String, String>) {
        let is_comm: Vec<bool> = self.by.iter().map(|by| *by == GroupKey::Comm).collect();
        for (mut key, sum) in std::mem::take(&mut self.sums) {
            for (word, _) in key.iter_mut().zip(&is_comm).filter(|(_, is_comm)| **is_comm) {
                if let Some(new) = names.get(&*self.texts[*word as usize]) {
                    *word = self.word(new);
                }
            }
            self.sums.entry(key).or_default().merge(sum);
        }
    }

    fn key(&mut self, added: &AddedSample<'_>, place: Option<&Frame>) -> Box<[TextId]> {
        let keys = self.by.clone();
        let word = |by: &GroupKey| match by {
            GroupKey::Comm => self.word(added.comm),
            GroupKey::Pid => self.word(&added.ids.0.to_string()),
            GroupKey::Tid => self.word(&added.ids.1.to_string()),
            GroupKey::Cpu => self.word(&format!("{:03}", added.cpu)),
            GroupKey::Cgroup => self.word(added.cgroup),
            GroupKey::Dso => self.word(&place.map_or(UNKNOWN_FILE.into(), short_name)),
            GroupKey::Symbol => match place {
                Some(frame) => {
                    let side = if frame.origin == Origin::Kernel { 'k' } else { '.' };
                    self.word(&format!("[{side}] {}", function(frame)))
                }
                None => self.word("[.] [unknown]"),
            },
        };
        keys.iter().map(word).collect()
    }

    fn word(&mut self, text: &str) -> TextId {
        if let Some(&known) = self.words.get(text) {
            return known;
        }
        if !self.has_taken(TEXT + 2 * text.len()) {
            return 0;
        }
        let word = self.texts.len() as TextId;
        self.texts.push(text.into());
        self.words.insert(text.into(), word);
        word
    }

    /// Returns the lines of the table, ordered by `with_callees` and then by `own`, the largest first.
    pub fn lines(&self) -> Vec<Line> {
        let line = |key: &[TextId], sum: &Sum| Line {
            keys: key.iter().map(|&word| self.texts[word as usize].to_string()).collect(),
            own: sum.own,
            with_callees: sum.with_callees,
            samples: sum.samples,
            callers: sum.callers.below(0, &self.texts),
        };
        let mut lines: Vec<Line> = self.sums.iter().map(|(key, sum)| line(key, sum)).collect();
        lines.sort_by(|a, b| {
            (Reverse((a.with_callees, a.own)), &a.keys).cmp(&(Reverse((b.with_callees, b.own)), &b.keys))
        });
        lines
    }
}

impl Sum {
    fn merge(&mut self, other: Sum) {
        self.own = self.own.saturating_add(other.own);
        self.with_callees = self.with_callees.saturating_add(other.with_callees);
        self.samples += other.samples;
        self.callers.merge(&other.callers);
    }
}

impl Tree {
    /// Adds the weights of another tree.
    fn merge(&mut self, other: &Tree) {
        if self.nodes.is_empty() {
            self.nodes.clone_from(&other.nodes);
            return;
        }
        // Pairs of nodes that stand for the same callers: the node in `other`, and the node in this tree.
        let mut same = if other.nodes.is_empty() { Vec::new() } else { vec![(0, 0)] };
        while let Some((theirs, own)) = same.pop() {
            for &caller in &other.nodes[theirs].callers {
                let at = self.caller(own, other.nodes[caller].name);
                self.nodes[at].weight += other.nodes[caller].weight;
                same.push((caller, at));
            }
        }
    }

    /// Returns the node of the caller `name` below the node `at`. Adds the node if it is new.
    fn caller(&mut self, at: usize, name: TextId) -> usize {
        let found = self.nodes[at].callers.iter().copied().find(|&caller| self.nodes[caller].name == name);
        found.unwrap_or_else(|| {
            let new = self.nodes.len();
            self.nodes.push(Node { name, weight: 0, callers: Vec::new() });
            self.nodes[at].callers.push(new);
            new
        })
    }

    /// Adds a weight to a chain of callers, and returns how many callers are new. Adds at most `room` new callers, and
    /// leaves out the callers further outward.
    fn add(&mut self, names: &[TextId], weight: u64, room: usize) -> usize {
        if self.nodes.is_empty() {
            self.nodes.push(Node { name: 0, weight: 0, callers: Vec::new() });
        }
        let (mut at, before) = (0, self.nodes.len());
        for &name in names {
            let is_known = || self.nodes[at].callers.iter().any(|&caller| self.nodes[caller].name == name);
            if self.nodes.len() - before == room && !is_known() {
                break;
            }
            at = self.caller(at, name);
            self.nodes[at].weight += weight;
        }
        self.nodes.len() - before
    }

    fn below(&self, at: usize, texts: &[Box<str>]) -> Vec<Caller> {
        let Some(node) = self.nodes.get(at) else { return Vec::new() };
        let caller = |&at: &usize| {
            let node = &self.nodes[at];
            let (name, weight) = (texts[node.name as usize].to_string(), node.weight);
            Caller { name, weight, callers: self.below(at, texts) }
        };
        let mut callers: Vec<Caller> = node.callers.iter().map(caller).collect();
        callers.sort_by(|a, b| (Reverse(a.weight), &a.name).cmp(&(Reverse(b.weight), &b.name)));
        callers
    }
}

const UNKNOWN_FILE: &str = "[unknown]";

/// The `dso` of all BPF programs.
const BPF: &str = "[bpf]";

fn function(frame: &Frame) -> &str {
    if &*frame.symbol == UNKNOWN { "[unknown]" } else { &frame.symbol }
}

/// Returns the file of a frame as `perf report` shows it. For the kernel and its modules, this is a name in brackets, even
/// if their paths are known (`dso__set_module_info()` in `tools/perf/util/dso.c`, `machine__process_kernel_mmap_event()` in
/// `tools/perf/util/machine.c`).
fn short_name(frame: &Frame) -> Cow<'_, str> {
    if frame.origin == Origin::Kernel {
        if &*frame.dso == BPF && &*frame.symbol != UNKNOWN {
            // In perf, each BPF program is a file of its own (`machine__process_ksymbol_register()`).
            return frame.symbol.strip_suffix(" [bpf]").unwrap_or(&frame.symbol).into();
        }
        if let Some(module) = module_name(&frame.dso) {
            return module.into();
        }
        if frame.dso.contains("vmlinux") {
            return "[kernel.vmlinux]".into();
        }
    }
    match frame.origin {
        // For generated code, perf shows the perf map of the process (`dso__set_basename()` in `tools/perf/util/dsos.c`).
        Origin::User { pid } | Origin::Inlined { pid } if is_generated_code(&frame.dso) => {
            format!("[JIT] tid {pid}").into()
        }
        _ => file_name(&frame.dso).into(),
    }
}

/// Returns the last part of a path. Returns names in brackets such as `[kernel.kallsyms]` whole.
fn file_name(dso: &str) -> &str {
    if dso.starts_with('[') { dso } else { dso.rsplit('/').next().unwrap_or(dso) }
}

#[cfg(test)]
mod tests {
    use perf_prof_symbols::symbol::Slot;

    use super::*;

    fn frame(symbol: &str) -> Arc<Frame> {
        Arc::new(Frame {
            slot: Slot::default(),
            addr: 1,
            symbol: symbol.into(),
            offset: 0,
            origin: Origin::Kernel,
            dso: "[kernel.kallsyms]".into(),
            dso_offset: 0,
            srcline: None,
        })
    }

    fn example_shares(by: &[GroupKey], callers: CallerSums) -> Shares {
        let mut shares = Shares::new(by, callers, &Budget::unlimited());
        for (names, period) in [("read,vfs,sys", 5), ("vfs,sys", 2), ("read,sys", 4), ("sys,sys", 1)] {
            let chain: Vec<Arc<Frame>> = names.split(',').map(frame).collect();
            let place = Some(&*chain[0]);
            shares.add(&AddedSample { period, comm: "sh", ids: (7, 8), cpu: 1, cgroup: "", place, chain: &chain });
        }
        shares
    }

    #[test]
    fn lines_are_sums_the_heaviest_first() {
        let shares = example_shares(&[GroupKey::Comm, GroupKey::Symbol], CallerSums::Ignored);
        let shown: Vec<_> = shares.lines().iter().map(|line| (line.keys.join(" "), line.own, line.samples)).collect();
        let row = |name: &str, own, samples| (format!("sh [k] {name}"), own, samples);
        assert_eq!(shown, [row("read", 9, 2), row("vfs", 2, 1), row("sys", 1, 1)]);
        assert_eq!((shares.samples(), shares.total()), (4, 12));
    }

    #[test]
    fn keys_without_room_are_one_line_and_nothing_is_lost() {
        let budget = Budget::new(1 << 20);
        for callers in [CallerSums::Ignored, CallerSums::Trees, CallerSums::Children] {
            let mut shares = Shares::new(&[GroupKey::Comm, GroupKey::Symbol], callers, &budget);
            for number in 0..5000 {
                let chain: Vec<Arc<Frame>> = (0..5).map(|at| frame(&format!("f{at}-{number}"))).collect();
                let (place, comm) = (Some(&*chain[0]), format!("{number}-{}", "x".repeat(100)));
                shares.add(&AddedSample {
                    period: 3,
                    comm: &comm,
                    ids: (7, 8),
                    cpu: 1,
                    cgroup: "",
                    place,
                    chain: &chain,
                });
                assert!(budget.held() <= budget.share());
            }
            let lines = shares.lines();
            assert_eq!((lines.iter().map(|line| line.own).sum::<u64>(), shares.total()), (15_000, 15_000));
            assert!(
                lines.iter().any(|line| line.keys.iter().all(|key| key == OTHERS)) && lines.len() > 100,
                "{callers:?}"
            );
            assert!((1000..5000).contains(&shares.others()), "{callers:?}: {}", shares.others());
        }
    }

    #[test]
    fn callees_count_once_per_function() {
        let shown: Vec<_> = example_shares(&[GroupKey::Symbol], CallerSums::Children).lines();
        let shown: Vec<_> = shown.iter().map(|line| (&*line.keys[0], line.with_callees, line.own)).collect();
        assert_eq!(shown, [("[k] sys", 12, 1), ("[k] read", 9, 9), ("[k] vfs", 7, 2)]);
    }

    #[test]
    fn each_bpf_program_is_a_file_of_its_own() {
        let named = |symbol: &str, dso: &str| {
            let frame = Frame { dso: dso.into(), ..Frame::clone(&frame(symbol)) };
            short_name(&frame).into_owned()
        };
        assert_eq!(named("bpf_prog_1_run", "[bpf]"), "bpf_prog_1_run");
        assert_eq!(named("bpf_prog_1_run [bpf]", "[bpf]"), "bpf_prog_1_run");
        assert_eq!(named(UNKNOWN, "[bpf]"), "[bpf]");
        assert_eq!(named("read", "[kernel.kallsyms]"), "[kernel.kallsyms]");
    }

    /// Renaming a task gives the same table as if its samples had been added with the new name.
    #[test]
    fn tasks_that_get_their_names_later_share_the_lines_of_these_names() {
        let names = HashMap::from([(":8".to_owned(), "sh".to_owned())]);
        let shares = |second: &str| {
            let mut shares = Shares::new(&[GroupKey::Comm, GroupKey::Symbol], CallerSums::Trees, &Budget::unlimited());
            for (comm, names, period) in [("sh", "read,vfs,sys", 5), (second, "read,vfs", 2), (second, "read,x,y", 1)] {
                let chain: Vec<Arc<Frame>> = names.split(',').map(frame).collect();
                let place = Some(&*chain[0]);
                shares.add(&AddedSample { period, comm, ids: (7, 8), cpu: 1, cgroup: "", place, chain: &chain });
            }
            shares
        };
        let mut renamed = shares(":8");
        assert_eq!(renamed.lines().len(), 2);
        renamed.rename_tasks(&names);
        assert_eq!(renamed.lines(), shares("sh").lines());
    }

    #[test]
    fn callers_are_a_tree() {
        let lines = example_shares(&[GroupKey::Dso, GroupKey::Symbol], CallerSums::Trees).lines();
        let sys = |weight| Caller { name: "sys".into(), weight, callers: Vec::new() };
        assert_eq!(lines[0].callers, [Caller { name: "vfs".into(), weight: 5, callers: vec![sys(5)] }, sys(4)]);
        assert_eq!(
            "sim".parse::<GroupKey>().unwrap_err().to_string(),
            "there is no key `sim`; the keys are comm, pid, tid, cpu, cgroup, dso, symbol"
        );
    }
}
