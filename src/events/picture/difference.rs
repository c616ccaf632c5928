//! The difference of two sets of stacks, for example of a program before and after a change.

use std::collections::{HashMap, HashSet};

use super::{
    Label, Stacks,
    flame_events::{Comparison, Part},
};

/// The smallest change with the strongest colour, in percentage points, if there are many samples: such a change is no finding.
const STRONGEST: f64 = 5.0;

/// What the outermost frames of stacks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Roots {
    /// The names of events. They separate weights in different units, which must not be added up, for example nanoseconds and
    /// calls.
    Events,
    /// The comms of tasks, if there is only one event.
    Tasks,
}

/// The stacks of two sets, each stack with its weight in both sets.
#[derive(Debug)]
pub struct StackDifference {
    /// The stacks of both sets. Their weights here only say that they exist.
    tree: Stacks,
    /// Each node of `tree`, by its number.
    nodes: Vec<Node>,
    roots: Roots,
    total: Sides<u64>,
    /// The largest change that chance may make, in percentage points. `None` if the numbers of samples are not known.
    by_chance: Option<f64>,
    /// The outermost nodes whose stacks are not compared. They are of one event, or of all if there is only one.
    apart: HashSet<usize>,
}

/// What the earlier and the later set have.
#[derive(Clone, Copy, Debug, Default)]
struct Sides<T> {
    before: T,
    after: T,
}

/// A stack.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    weight: Sides<Weight>,
    /// The number of the node of its outermost frame.
    root: usize,
}

/// The weight of a node in one set.
#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    /// That of the stacks that end at this node.
    own: u64,
    /// That of all stacks through this node.
    with_called: u64,
}

impl Node {
    /// Returns whether the picture of the later set has a box for the node.
    fn is_drawn(&self) -> bool {
        self.weight.after.with_called != 0
    }

    /// Returns whether the earlier set has no such stack.
    fn is_new(&self) -> bool {
        self.weight.before.with_called == 0
    }
}

impl StackDifference {
    /// Compares two sets of stacks. Shares are those of their event.
    pub fn new(before: &Stacks, after: &Stacks, roots: Roots) -> StackDifference {
        let total = Sides { before: before.total(), after: after.total() };
        let (tree, nodes) = (Stacks::default(), Vec::new());
        let mut difference = StackDifference { tree, nodes, roots, total, by_chance: None, apart: HashSet::new() };
        before.for_each(|stack, weight| difference.add(stack, weight, |sides| &mut sides.before));
        after.for_each(|stack, weight| difference.add(stack, weight, |sides| &mut sides.after));
        difference
    }

    /// Says how many samples the sets have. Chance alone changes the share of a function by `sqrt(p * (1 - p) / samples)` in each
    /// of them. The strongest colour is for three times what it changes a share of a half, so what is chance is pale.
    pub fn of_samples(self, before: u64, after: u64) -> StackDifference {
        let deviation = 50.0 * [before, after].map(|count| 1.0 / count.max(1) as f64).iter().sum::<f64>().sqrt();
        StackDifference { by_chance: Some((3.0 * deviation).min(100.0)), ..self }
    }

    /// Leaves these events out of the comparison. `Roots::Tasks` has only one event, so any name stands for it.
    pub fn without(mut self, events: &[String]) -> StackDifference {
        let events: Vec<String> = events.iter().map(|name| Label::Name(name).text()).collect();
        let is_event = |root: &str| self.roots == Roots::Tasks || events.iter().any(|event| event == root);
        if !events.is_empty() {
            self.tree.for_each_node(|stack, node| {
                if !stack.contains(';') && is_event(stack) {
                    self.apart.insert(node.0);
                }
            });
        }
        self
    }

    /// Returns the smallest change with the strongest colour, in percentage points.
    fn strongest(&self) -> f64 {
        self.by_chance.map_or(STRONGEST, |by_chance| by_chance.max(STRONGEST))
    }

    /// Returns the largest change that chance may make, in percentage points. `None` if the numbers of samples are not known.
    pub fn by_chance(&self) -> Option<f64> {
        self.by_chance
    }

    fn add(&mut self, stack: &str, weight: u64, side: impl Fn(&mut Sides<Weight>) -> &mut Weight) {
        let mut end = self.tree.root();
        let mut root = None;
        for name in stack.split(';') {
            end = self.tree.child(end, Label::Name(name));
            let root = *root.get_or_insert(end.0);
            if self.nodes.len() <= end.0 {
                self.nodes.resize_with(end.0 + 1, Node::default);
            }
            self.nodes[end.0].root = root;
            side(&mut self.nodes[end.0].weight).with_called += weight;
        }
        side(&mut self.nodes[end.0].weight).own += weight;
    }

    /// Returns whether the later set is empty.
    pub fn is_without_later(&self) -> bool {
        self.total.after == 0
    }

    /// Returns what the outermost frames are.
    pub(super) fn roots(&self) -> Roots {
        self.roots
    }

    /// Returns the sums of the weights of a node's event.
    fn total(&self, node: &Node) -> Sides<u64> {
        let Sides { before, after } = self.nodes[node.root].weight;
        match self.roots {
            Roots::Tasks => self.total,
            Roots::Events => Sides { before: before.with_called, after: after.with_called },
        }
    }

    /// Returns whether the event of a node is compared. An event that only one set has cannot be.
    fn is_compared(&self, node: &Node) -> bool {
        let total = self.total(node);
        total.before != 0 && total.after != 0 && !self.apart.contains(&node.root)
    }

    /// Returns for each box of the later set whether it is compared.
    fn comparisons(&self) -> impl Iterator<Item = bool> {
        self.nodes.iter().filter(|node| node.is_drawn()).map(|node| self.is_compared(node))
    }

    /// Returns whether the picture of the later set has boxes that are compared.
    pub fn compares_any(&self) -> bool {
        self.comparisons().any(|is_compared| is_compared)
    }

    /// Returns whether the picture of the later set has boxes that are not compared.
    pub fn leaves_out_any(&self) -> bool {
        self.comparisons().any(|is_compared| !is_compared)
    }

    /// Returns the change of a stack's share that has the strongest colour in a picture, in percentage points: the largest one of
    /// stacks with a box that is not new, but at least 5, and more if there are few samples.
    pub fn strongest_change(&self) -> f64 {
        let compared = self.nodes.iter().filter(|node| node.is_drawn() && !node.is_new() && self.is_compared(node));
        let changes = compared.map(|node| {
            let (Sides { before, after }, total) = (node.weight, self.total(node));
            share(after.own, total.after) - share(before.own, total.before)
        });
        changes.fold(self.strongest(), |largest, change| largest.max(change.abs()))
    }

    /// Returns the share of the later set that is in stacks which the earlier set does not have, in percent: that of the event
    /// with the largest one.
    pub fn new_share(&self) -> f64 {
        self.largest_sum(|node, total| if node.is_new() { share(node.weight.after.own, total.after) } else { 0.0 })
    }

    /// Returns the share of the earlier set that is in stacks without a box in the picture of the later set, in percent: that of
    /// the event with the largest one.
    pub fn gone_share(&self) -> f64 {
        self.largest_sum(|node, total| if node.is_drawn() { 0.0 } else { share(node.weight.before.own, total.before) })
    }

    /// Adds up a share of the stacks of each event. Returns the largest sum.
    fn largest_sum(&self, of: impl Fn(&Node, Sides<u64>) -> f64) -> f64 {
        let mut sums: HashMap<usize, f64> = HashMap::new();
        for node in &self.nodes {
            let event = if self.roots == Roots::Events { node.root } else { 0 };
            if self.is_compared(node) {
                *sums.entry(event).or_default() += of(node, self.total(node));
            }
        }
        sums.into_values().fold(0.0, f64::max)
    }

    /// Returns folded text: in each line the frames, outermost first and separated by `;`, then the weight in the earlier
    /// set and the weight in the later set.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        self.tree.for_each_node(|stack, node| match self.nodes[node.0].weight {
            Sides { before: Weight { own: 0, .. }, after: Weight { own: 0, .. } } => {}
            Sides { before, after } => lines.push(format!("{stack} {} {}", before.own, after.own)),
        });
        lines
    }

    /// Returns folded text of the boxes of the later set, a line for each box, because a box gets its colour from a line of its
    /// own. Notes the edges of the parts.
    ///
    /// A new stack has only its weight. Other lines are like those of [`StackDifference::lines`], but both weights are those of the
    /// picture, and the earlier one is scaled so that both sets have the same sum: the recordings may differ in length,
    /// so shares are compared.
    pub(super) fn boxes(&self, parts: &mut [Part<'_>]) -> Vec<String> {
        let mut lines = Vec::new();
        let (mut end, mut is_scaled) = (0u64, false);
        self.tree.for_each_node(|stack, node| {
            let node = &self.nodes[node.0];
            let Some(part) = parts.iter_mut().find(|part| part.has(stack)).filter(|_| node.is_drawn()) else { return };
            let (own, total) = (part.widened(node.weight.after.own, &mut end), self.total(node));
            if let (false, true, Some(label)) = (stack.contains(';'), total.before != 0, &mut part.label) {
                *label += &format!(", {} before", part.event.text(total.before));
            }
            if !self.is_compared(node) {
                part.comparison = Comparison::Impossible;
                lines.push(format!("{} {own} {own}", part.labelled(stack)));
                return;
            }
            let stack = part.labelled(stack);
            let width = total.after.saturating_mul(part.factor);
            let before = u128::from(node.weight.before.own) * u128::from(width) / u128::from(total.before.max(1));
            lines.push(if node.is_new() { format!("{stack} {own}") } else { format!("{stack} {before} {own}") });
            if !std::mem::replace(&mut is_scaled, true) {
                // Colours are relative to the largest change of a line. This line says the smallest one and adds no box.
                lines.push(format!("{stack} {} 0", (width as f64 * self.strongest() / 100.0) as u64));
            }
        });
        lines
    }
}

fn share(weight: u64, of: u64) -> f64 {
    weight as f64 * 100.0 / of.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::stacks::stacks;

    #[test]
    fn all_stacks_have_both_weights() {
        let difference = StackDifference::new(
            &stacks(&[("f/g", 10), ("gone", 5), ("f", 1)]),
            &stacks(&[("f/g", 7), ("f.part.0", 2), ("f/h", 1)]),
            Roots::Tasks,
        );
        assert_eq!(difference.lines(), ["f 1 0", "f;g 10 7", "f;h 0 1", "f.part.0 0 2", "gone 5 0"]);
        assert_eq!((difference.new_share(), difference.gone_share()), (30.0, 31.25));
    }

    #[test]
    fn shares_are_those_of_an_event() {
        let before = stacks(&[("calls/f", 1), ("calls/g", 1), ("ns/f", 1000)]);
        let after = stacks(&[("calls/f", 3), ("calls/g", 1), ("ns/f", 500), ("ns/h", 500)]);
        let difference = StackDifference::new(&before, &after, Roots::Events);
        assert_eq!((difference.strongest_change(), difference.new_share()), (50.0, 50.0));
    }

    #[test]
    fn events_that_are_left_out_are_not_compared() {
        let before = stacks(&[("calls/f", 1), ("ns/f", 1000)]);
        let after = stacks(&[("calls/f", 3), ("ns/main/f", 500), ("ns/main/h", 500)]);
        let difference = StackDifference::new(&before, &after, Roots::Events);
        assert_eq!(
            (difference.new_share(), difference.gone_share(), difference.leaves_out_any()),
            (100.0, 100.0, false)
        );
        let difference = difference.without(&["ns".to_owned()]);
        assert_eq!((difference.new_share(), difference.gone_share()), (0.0, 0.0));
        assert!(difference.compares_any() && difference.leaves_out_any());
        let difference = StackDifference::new(&before, &after, Roots::Tasks).without(&["e".to_owned()]);
        assert!(!difference.compares_any() && difference.leaves_out_any());
    }

    #[test]
    fn a_change_by_chance_has_no_strong_colour() {
        let (before, after) = (stacks(&[("f", 10), ("g", 18)]), stacks(&[("f", 13), ("g", 16)]));
        let strongest = |samples| {
            let difference = StackDifference::new(&before, &after, Roots::Tasks);
            (difference.of_samples(samples, samples).strongest_change() * 10.0).round() / 10.0
        };
        assert_eq!([28, 1000, 3000, 1_000_000, 0].map(strongest), [40.1, 9.1, 9.1, 9.1, 100.0]);
    }
}
