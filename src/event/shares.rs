//! What samples add up to, by task, file and function: a table of shares, trees of callers, and what functions took with
//! all that they called. Knows nothing of how they are shown.

use std::{cmp::Reverse, str::FromStr, sync::Arc};

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Frame, Origin, UNKNOWN};

/// By what samples are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// The task's name.
    Comm,
    /// The process.
    Pid,
    /// The thread.
    Tid,
    /// The CPU.
    Cpu,
    /// The file that the function is in.
    Dso,
    /// The function.
    Symbol,
}

/// The keys by their names.
const NAMES: [(&str, By); 7] = [
    ("comm", By::Comm),
    ("pid", By::Pid),
    ("tid", By::Tid),
    ("cpu", By::Cpu),
    ("dso", By::Dso),
    ("symbol", By::Symbol),
    ("sym", By::Symbol),
];

/// There is no such key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no key `{0}`; keys are comm, pid, tid, cpu, dso, symbol")]
pub struct UnknownKey(String);

impl FromStr for By {
    type Err = UnknownKey;

    fn from_str(name: &str) -> Result<Self, UnknownKey> {
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, by)| *by).ok_or_else(|| UnknownKey(name.to_owned()))
    }
}

/// A sample, as far as it is added.
#[derive(Clone, Copy, Debug)]
pub struct Added<'a> {
    /// What it weighs.
    pub period: u64,
    /// The name of its task.
    pub comm: &'a str,
    /// Its process and thread.
    pub ids: (i32, i32),
    /// Its CPU.
    pub cpu: u32,
    /// Where it was; `None` where samples do not say.
    pub place: Option<&'a Frame>,
    /// Its callers, innermost first, the place itself among them where there is a chain.
    pub chain: &'a [Arc<Frame>],
}

/// Which sums are wanted beside what was taken in each place itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Callers {
    /// None.
    #[default]
    Ignored,
    /// A tree of callers for each place.
    Trees,
    /// Of each function that was in a call chain, what it took with all that it called.
    Children,
}

/// A word that occurs again and again.
type Word = u32;

/// One line of the table.
#[derive(Clone, Debug, Default)]
struct Sum {
    own: u64,
    with_called: u64,
    samples: u64,
    callers: Tree,
}

/// Callers of a place, and theirs.
#[derive(Clone, Debug, Default)]
struct Tree {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    name: Word,
    weight: u64,
    callers: Vec<usize>,
}

/// Sums of samples.
#[derive(Debug)]
pub struct Shares {
    by: Vec<By>,
    callers: Callers,
    words: FxHashMap<Box<str>, Word>,
    texts: Vec<Box<str>>,
    sums: FxHashMap<Box<[Word]>, Sum>,
    samples: u64,
    total: u64,
}

/// A line of the table, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// A text for each key.
    pub keys: Vec<String>,
    /// What was taken there.
    pub own: u64,
    /// The same and what was called from there.
    pub with_called: u64,
    /// How many samples were there.
    pub samples: u64,
    /// Who called it, the heaviest first.
    pub callers: Vec<Caller>,
}

/// A caller in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The function.
    pub name: String,
    /// What was taken in the place when this one had called it.
    pub weight: u64,
    /// Who called this one.
    pub callers: Vec<Caller>,
}

impl Shares {
    /// Nothing yet.
    pub fn new(by: &[By], callers: Callers) -> Shares {
        let (by, words, sums) = (by.to_vec(), FxHashMap::default(), FxHashMap::default());
        Shares { by, callers, words, texts: Vec::new(), sums, samples: 0, total: 0 }
    }

    /// How many samples were added.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The sum of their periods.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Adds a sample.
    pub fn add(&mut self, added: &Added<'_>) {
        self.samples += 1;
        self.total = self.total.saturating_add(added.period);
        let key = self.key(added, added.place);
        let sum = self.sums.entry(key.clone()).or_default();
        sum.own = sum.own.saturating_add(added.period);
        sum.samples += 1;
        match self.callers {
            Callers::Ignored => {}
            Callers::Trees => {
                // The first of them is the place itself.
                let names: Vec<Word> = added.chain.iter().skip(1).map(|frame| self.word(function(frame))).collect();
                let sum = self.sums.entry(key).or_default();
                sum.callers.add(&names, added.period);
            }
            Callers::Children => {
                // A function that calls itself took its time once.
                let mut seen = FxHashSet::from_iter([key]);
                for frame in added.chain {
                    seen.insert(self.key(added, Some(frame)));
                }
                for key in seen {
                    let sum = self.sums.entry(key).or_default();
                    sum.with_called = sum.with_called.saturating_add(added.period);
                }
            }
        }
    }

    fn key(&mut self, added: &Added<'_>, place: Option<&Frame>) -> Box<[Word]> {
        let keys = self.by.clone();
        let word = |by: &By| match by {
            By::Comm => self.word(added.comm),
            By::Pid => self.word(&added.ids.0.to_string()),
            By::Tid => self.word(&added.ids.1.to_string()),
            By::Cpu => self.word(&format!("{:03}", added.cpu)),
            By::Dso => self.word(place.map_or(UNKNOWN_FILE, |frame| file_name(&frame.dso))),
            By::Symbol => match place {
                Some(frame) => {
                    let side = if frame.origin == Origin::Kernel { 'k' } else { '.' };
                    self.word(&format!("[{side}] {}", function(frame)))
                }
                None => self.word("[.] [unknown]"),
            },
        };
        keys.iter().map(word).collect()
    }

    fn word(&mut self, text: &str) -> Word {
        if let Some(&known) = self.words.get(text) {
            return known;
        }
        let word = self.texts.len() as Word;
        self.texts.push(text.into());
        self.words.insert(text.into(), word);
        word
    }

    /// The lines, the heaviest first.
    pub fn lines(&self) -> Vec<Line> {
        let line = |key: &[Word], sum: &Sum| Line {
            keys: key.iter().map(|&word| self.texts[word as usize].to_string()).collect(),
            own: sum.own,
            with_called: sum.with_called,
            samples: sum.samples,
            callers: sum.callers.below(0, &self.texts),
        };
        let mut lines: Vec<Line> = self.sums.iter().map(|(key, sum)| line(key, sum)).collect();
        lines.sort_by(|a, b| {
            (Reverse((a.with_called, a.own)), &a.keys).cmp(&(Reverse((b.with_called, b.own)), &b.keys))
        });
        lines
    }
}

impl Tree {
    fn add(&mut self, names: &[Word], weight: u64) {
        if self.nodes.is_empty() {
            self.nodes.push(Node { name: 0, weight: 0, callers: Vec::new() });
        }
        let mut at = 0;
        for &name in names {
            let found = self.nodes[at].callers.iter().copied().find(|&caller| self.nodes[caller].name == name);
            at = found.unwrap_or_else(|| {
                let new = self.nodes.len();
                self.nodes.push(Node { name, weight: 0, callers: Vec::new() });
                self.nodes[at].callers.push(new);
                new
            });
            self.nodes[at].weight += weight;
        }
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

fn function(frame: &Frame) -> &str {
    if &*frame.symbol == UNKNOWN { "[unknown]" } else { &frame.symbol }
}

/// The last part of a path; `[kernel.kallsyms]` and the like are whole.
fn file_name(dso: &str) -> &str {
    if dso.starts_with('[') { dso } else { dso.rsplit('/').next().unwrap_or(dso) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::Slot;

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

    fn shares(by: &[By], callers: Callers) -> Shares {
        let mut shares = Shares::new(by, callers);
        for (names, period) in [("read,vfs,sys", 5), ("vfs,sys", 2), ("read,sys", 4), ("sys,sys", 1)] {
            let chain: Vec<Arc<Frame>> = names.split(',').map(frame).collect();
            let place = Some(&*chain[0]);
            shares.add(&Added { period, comm: "sh", ids: (7, 8), cpu: 1, place, chain: &chain });
        }
        shares
    }

    #[test]
    fn lines_are_sums_the_heaviest_first() {
        let shares = shares(&[By::Comm, By::Symbol], Callers::Ignored);
        let shown: Vec<_> = shares.lines().iter().map(|line| (line.keys.join(" "), line.own, line.samples)).collect();
        let row = |name: &str, own, samples| (format!("sh [k] {name}"), own, samples);
        assert_eq!(shown, [row("read", 9, 2), row("vfs", 2, 1), row("sys", 1, 1)]);
        assert_eq!((shares.samples(), shares.total()), (4, 12));
    }

    #[test]
    fn a_function_has_what_it_called_once() {
        let shown: Vec<_> = shares(&[By::Symbol], Callers::Children).lines();
        let shown: Vec<_> = shown.iter().map(|line| (&*line.keys[0], line.with_called, line.own)).collect();
        assert_eq!(shown, [("[k] sys", 12, 1), ("[k] read", 9, 9), ("[k] vfs", 7, 2)]);
    }

    #[test]
    fn callers_are_a_tree() {
        let lines = shares(&[By::Dso, By::Symbol], Callers::Trees).lines();
        let sys = |weight| Caller { name: "sys".into(), weight, callers: Vec::new() };
        assert_eq!(lines[0].callers, [Caller { name: "vfs".into(), weight: 5, callers: vec![sys(5)] }, sys(4)]);
        assert_eq!(
            "sim".parse::<By>().unwrap_err().to_string(),
            "there is no key `sim`; keys are comm, pid, tid, cpu, dso, symbol"
        );
    }
}
