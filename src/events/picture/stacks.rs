//! Stacks with weights. A stack is a node in a tree of frames, and equal stacks are merged as they are added. To add a known
//! stack takes two lookups for each frame, and no memory.
//!
//! Stacks are drawn in the order of the tree. Flame graph tools sort the lines of folded text instead. Sorting splits the
//! box of `f`, because `f.part.0` sorts between `f` and `f;g`.

use std::collections::HashMap;

use perf_prof_system::budget::{Budget, HeldFor, Holding};

use super::{
    Label,
    long_chains::{MAX_FRAMES, note_of_long_chains},
    quantity::counted,
};

/// A tree of stacks, each with the sum of its weights.
#[derive(Debug)]
pub struct Stacks {
    nodes: Vec<Node>,
    /// The node of each frame, by the node of the frame's caller and the index of the frame's name.
    children: HashMap<(usize, usize), usize>,
    names: Vec<String>,
    /// For each kind of label: the text of a label, and its index in `names`.
    labels: [HashMap<Box<str>, usize>; Label::KINDS],
    stacks: usize,
    total: u64,
    /// The weight of stacks that are shorter than their long chains, because frames share nodes.
    merged: u64,
    memory: Holding,
}

/// The memory of a node, and of a label with its name, in bytes, without their texts. Includes the spare capacity of the
/// tables.
const NODE: usize = 160;
const LABEL: usize = 256;

/// A frame in the tree.
#[derive(Debug)]
struct Node {
    caller: usize,
    name: usize,
    /// The weight of the stacks that end at this frame.
    weight: u64,
}

/// A node of the tree: a frame with all its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackNode(pub(super) usize);

/// The error if the sum of all weights exceeds a `u64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the weights add up to more than 2**64 - 1")]
pub struct WeightOverflow;

impl Default for Stacks {
    fn default() -> Stacks {
        let all = Node { caller: 0, name: 0, weight: 0 };
        Stacks {
            nodes: vec![all],
            children: HashMap::new(),
            names: Vec::new(),
            labels: Default::default(),
            stacks: 0,
            total: 0,
            merged: 0,
            memory: Budget::unlimited().hold(HeldFor::Tables),
        }
    }
}

impl Stacks {
    /// Creates an empty tree. The memory of the tree comes from `budget`.
    pub fn within(budget: &Budget) -> Stacks {
        Stacks { memory: budget.hold(HeldFor::Tables), ..Stacks::default() }
    }

    /// Like [`Stacks::child`], but returns `None` if there is no memory for a new node.
    pub fn child_with_room(&mut self, caller: StackNode, label: Label<'_>) -> Option<StackNode> {
        let (kind, text) = label.parts();
        let name = self.labels[kind].get(text);
        let is_known = name.is_some_and(|&name| self.children.contains_key(&(caller.0, name)));
        let bytes = NODE + if name.is_some() { 0 } else { LABEL + 3 * text.len() };
        if !is_known {
            if !self.memory.has_room(bytes) {
                return None;
            }
            self.memory.set(self.memory.bytes() + bytes);
        }
        Some(self.child(caller, label))
    }

    /// Returns the root, the caller of all outermost frames. It has no frame.
    pub fn root(&self) -> StackNode {
        StackNode(0)
    }

    /// Returns the node of the frame `label` that the node `caller` called. Adds the node if it is new. Adjacent frames
    /// without a symbol in the same file share a node, because further nodes would say nothing more.
    pub fn child(&mut self, caller: StackNode, label: Label<'_>) -> StackNode {
        let is_unknown = matches!(label, Label::InFile(_) | Label::InKernel(_));
        let name = self.name(label);
        if is_unknown && caller != self.root() && self.nodes[caller.0].name == name {
            return caller;
        }
        let next = self.nodes.len();
        let node = *self.children.entry((caller.0, name)).or_insert(next);
        if node == next {
            self.nodes.push(Node { caller: caller.0, name, weight: 0 });
        }
        StackNode(node)
    }

    /// Adds a weight to the stack that ends at the node `end`. A stack without frames becomes a stack with one unknown
    /// frame.
    pub fn add_weight(&mut self, mut end: StackNode, weight: u64) -> Result<(), WeightOverflow> {
        if end == self.root() {
            end = self.child(end, Label::Name(""));
        }
        self.total = self.total.checked_add(weight).ok_or(WeightOverflow)?;
        let node = &mut self.nodes[end.0];
        self.stacks += usize::from(node.weight == 0 && weight != 0);
        node.weight += weight;
        Ok(())
    }

    /// Returns the sum of all weights.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Says how much of the weight is in stacks so long that their outermost callers may be missing. `None` if there are none.
    pub fn cut_off(&self) -> Option<String> {
        let mut depths = vec![0_usize; self.nodes.len()];
        let mut weight: u64 = 0;
        // The caller of a node comes before it.
        for (at, node) in self.nodes.iter().enumerate().skip(1) {
            depths[at] = depths[node.caller] + 1;
            // The first node is the task.
            if depths[at] > MAX_FRAMES {
                weight = weight.saturating_add(node.weight);
            }
        }
        note_of_long_chains(weight.saturating_add(self.merged), self.total)
    }

    /// Notes that the chain of a stack that ends at the node `end` has so many frames: frames that share a node make a stack
    /// shorter than its chain.
    pub fn note_length(&mut self, end: StackNode, frames: usize, weight: u64) {
        let callers = std::iter::successors(Some(end.0), |&node| (node != 0).then(|| self.nodes[node].caller));
        if frames >= MAX_FRAMES && callers.skip(1).count() <= MAX_FRAMES {
            self.add_merged(weight);
        }
    }

    /// The weight of stacks whose chains are long, and that are short because frames share nodes.
    pub fn merged(&self) -> u64 {
        self.merged
    }

    /// Adds to [`Stacks::merged`] what other stacks have there.
    pub fn add_merged(&mut self, weight: u64) {
        self.merged = self.merged.saturating_add(weight);
    }

    /// Returns the names of all frames.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.names.iter().map(String::as_str)
    }

    /// Returns the number of different stacks with a weight.
    pub fn len(&self) -> usize {
        self.stacks
    }

    /// Returns whether no stack has a weight.
    pub fn is_empty(&self) -> bool {
        self.stacks == 0
    }

    fn name(&mut self, label: Label<'_>) -> usize {
        let (kind, text) = label.parts();
        if let Some(&known) = self.labels[kind].get(text) {
            return known;
        }
        // Labels of different kinds may have the same text. Readers cannot tell them apart, so they share one name.
        let shown = label.text();
        let name = match self.labels[0].get(shown.as_str()) {
            Some(&known) => known,
            None => {
                self.names.push(shown.clone());
                self.labels[0].insert(shown.into(), self.names.len() - 1);
                self.names.len() - 1
            }
        };
        self.labels[kind].insert(text.into(), name);
        name
    }

    /// Calls `visit` with each stack that has a weight, and with the weight. A stack is text: its frames, outermost first
    /// and separated by `;`. Stacks with common outer frames follow each other. Sorted lines would not have this order:
    /// `f.part.0` would come between `f` and `f;g`.
    pub(super) fn for_each(&self, mut visit: impl FnMut(&str, u64)) {
        self.for_each_node(|stack, node| match self.nodes[node.0].weight {
            0 => {}
            weight => visit(stack, weight),
        });
    }

    /// Calls `visit` with the stack of each node in the same order, also if it has no weight of its own.
    pub(super) fn for_each_node(&self, mut visit: impl FnMut(&str, StackNode)) {
        let mut called: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate().skip(1) {
            called[node.caller].push(at);
        }
        // In descending order, because the last element is visited first.
        for nodes in &mut called {
            nodes.sort_unstable_by(|&a, &b| self.names[self.nodes[b].name].cmp(&self.names[self.nodes[a].name]));
        }
        let mut line = String::new();
        let mut left: Vec<(usize, usize)> = called[0].iter().map(|&node| (node, 0)).collect();
        while let Some((at, begin)) = left.pop() {
            line.truncate(begin);
            if begin != 0 {
                line.push(';');
            }
            let node = &self.nodes[at];
            line.push_str(&self.names[node.name]);
            visit(&line, StackNode(at));
            left.extend(called[at].iter().map(|&node| (node, line.len())));
        }
    }

    /// Returns folded text: in each line the frames, outermost first and separated by `;`, then the weight.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::with_capacity(self.stacks);
        self.for_each(|stack, weight| lines.push(format!("{stack} {weight}")));
        lines
    }
}

/// Makes stacks for tests. `/` separates the functions of a stack, outermost first.
#[cfg(test)]
pub(super) fn stacks(of: &[(&str, u64)]) -> Stacks {
    let mut stacks = Stacks::default();
    for (frames, weight) in of {
        let root = stacks.root();
        let end = frames.split('/').fold(root, |caller, name| stacks.child(caller, Label::Name(name)));
        stacks.add_weight(end, *weight).unwrap();
    }
    stacks
}

/// Says that the call chains of so many samples did not fit into the memory of `--buffer`. `None` if all did.
pub fn note_of_cut_chains(samples: u64) -> Option<String> {
    let of = counted(samples, "samples");
    (samples != 0).then(|| format!("the call chains of {of} are cut off, because memory was short (--buffer)"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn stacks(of: &[(&[&str], u64)]) -> Stacks {
        let mut stacks = Stacks::default();
        for (frames, weight) in of {
            let root = stacks.root();
            let end = frames.iter().fold(root, |caller, name| stacks.child(caller, Label::Name(name)));
            stacks.add_weight(end, *weight).unwrap();
        }
        stacks
    }

    #[track_caller]
    fn check(of: &[(&[&str], u64)], expect: Expect) {
        expect.assert_eq(&stacks(of).lines().join("\n"));
    }

    #[test]
    fn a_long_chain_whose_frames_share_a_node_is_counted_too() {
        let mut stacks = Stacks::default();
        let task = stacks.child(stacks.root(), Label::Name("sh"));
        let end = (0..MAX_FRAMES).fold(task, |caller, _| stacks.child(caller, Label::InFile("/bin/sh")));
        stacks.add_weight(end, 1).unwrap();
        stacks.note_length(end, MAX_FRAMES, 1);
        assert_eq!(stacks.lines(), ["sh;[sh] 1"]);
        let long = (0..MAX_FRAMES).fold(task, |caller, at| stacks.child(caller, Label::Name(&at.to_string())));
        stacks.add_weight(long, 1).unwrap();
        stacks.note_length(long, MAX_FRAMES, 1);
        stacks.add_weight(task, 2).unwrap();
        assert!(stacks.cut_off().is_some_and(|said| said.starts_with("50.0 % is in stacks of 127 frames")));
    }

    #[test]
    fn long_stacks_may_lack_callers() {
        let cut_off = |depths: &[(usize, u64)]| {
            let names: Vec<(String, u64)> =
                depths.iter().map(|&(frames, weight)| (format!("task{}", "/f".repeat(frames)), weight)).collect();
            let of: Vec<(&str, u64)> = names.iter().map(|(frames, weight)| (&**frames, *weight)).collect();
            super::stacks(&of).cut_off()
        };
        assert_eq!(cut_off(&[(1, 5), (126, 2)]), None);
        let said = "25.0 % is in stacks of 127 frames or more, whose callers may be cut off";
        assert_eq!(cut_off(&[(1, 6), (127, 1), (300, 1)]).as_deref(), Some(said));
    }

    #[test]
    fn equal_stacks_are_one_line() {
        check(
            &[(&["a", "b"], 1), (&["a", "b", "c"], 5), (&["a", "b"], 2), (&["b"], 1)],
            expect![[r#"
                a;b 3
                a;b;c 5
                b 1"#]],
        );
    }

    #[test]
    fn a_function_is_not_split_by_one_that_sorts_between_its_lines() {
        check(
            &[(&["f", "g"], 1), (&["f.part.0"], 1), (&["f"], 1)],
            expect![[r#"
                f 1
                f;g 1
                f.part.0 1"#]],
        );
    }

    #[test]
    fn labels_that_look_alike_are_one() {
        let mut stacks = Stacks::default();
        for label in [Label::Name("f_[k]"), Label::Kernel("f"), Label::Name(" f_[k]")] {
            let end = stacks.child(stacks.root(), label);
            stacks.add_weight(end, 1).unwrap();
        }
        assert_eq!(stacks.lines(), ["f_[k] 3"]);
    }

    #[test]
    fn a_tree_takes_no_more_memory_than_its_share() {
        let budget = Budget::new(1 << 20);
        let mut stacks = Stacks::within(&budget);
        let names: Vec<String> = (0..100_000).map(|number| format!("f{number}")).collect();
        let mut end = stacks.root();
        let added = names.iter().map_while(|name| {
            end = stacks.child_with_room(end, Label::Name(name))?;
            Some(())
        });
        let added = added.count();
        assert!((100..5000).contains(&added) && budget.held() <= budget.share(), "{added}");
        // A node that exists needs no memory.
        assert!(stacks.child_with_room(stacks.root(), Label::Name("f0")).is_some());
        assert!(stacks.child_with_room(stacks.root(), Label::Name("f1")).is_none());
    }

    #[test]
    fn nothing_but_a_weight_is_an_unknown_stack() {
        check(&[(&[], 7)], expect!["[unknown] 7"]);
    }

    #[test]
    fn a_weight_of_nothing_is_no_stack() {
        let stacks = stacks(&[(&["a"], 0)]);
        assert_eq!((stacks.len(), stacks.is_empty(), stacks.lines()), (0, true, vec![]));
    }

    #[test]
    fn weights_that_do_not_fit_are_refused_and_change_nothing() {
        let mut stacks = stacks(&[(&["a"], u64::MAX)]);
        let end = stacks.child(stacks.root(), Label::Name("b"));
        assert_eq!(stacks.add_weight(end, 1), Err(WeightOverflow));
        assert_eq!((stacks.total(), stacks.len(), stacks.lines()), (u64::MAX, 1, vec![format!("a {}", u64::MAX)]));
    }

    proptest! {
        #[test]
        fn weights_add_up(of in prop::collection::vec((prop::collection::vec("[ab; 1]{0,3}", 0..4), 0..100u64), 0..50)) {
            let mut merged = Stacks::default();
            let mut expected = BTreeMap::new();
            for (frames, weight) in &of {
                let mut end = merged.root();
                for name in frames {
                    end = merged.child(end, Label::Name(name));
                }
                merged.add_weight(end, *weight).unwrap();
                let names: Vec<String> = frames.iter().map(|name| Label::Name(name).text()).collect();
                let stack = if names.is_empty() { "[unknown]".into() } else { names.join(";") };
                *expected.entry(stack).or_insert(0) += weight;
            }
            expected.retain(|_, weight| *weight != 0);
            let lines = merged.lines();
            let found: BTreeMap<String, u64> = lines.iter().map(|line| line.rsplit_once(' ').unwrap()).map(|(stack, weight)| (stack.to_owned(), weight.parse().unwrap())).collect();
            prop_assert_eq!(lines.len(), merged.len());
            prop_assert_eq!(found, expected);
            prop_assert_eq!(merged.total(), of.iter().map(|(_, weight)| weight).sum::<u64>());
        }
    }
}
