//! The difference of two sets of stacks, for example of a program before and after a change.

use super::{Label, Stacks};

/// The stacks of two sets, each stack with its weight in both sets.
#[derive(Debug)]
pub struct StackDifference {
    /// The stacks of both sets. Their weights here only say that they exist.
    tree: Stacks,
    /// The weights of each node of `tree`, by its number.
    weights: Vec<Sides<Weight>>,
    total: Sides<u64>,
}

/// The smallest change with the strongest colour, in percentage points: a few samples more or less are no finding.
const STRONGEST: f64 = 1.0;

/// What the earlier and the later set have.
#[derive(Clone, Copy, Debug, Default)]
struct Sides<T> {
    before: T,
    after: T,
}

/// The weight of a node in one set.
#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    /// That of the stacks that end at this node.
    own: u64,
    /// That of all stacks through this node.
    with_called: u64,
}

impl Sides<Weight> {
    /// Returns whether the picture of the later set has a box for the node.
    fn is_drawn(&self) -> bool {
        self.after.with_called != 0
    }

    /// Returns whether the earlier set has no such stack.
    fn is_new(&self) -> bool {
        self.before.with_called == 0
    }
}

impl StackDifference {
    /// Compares two sets of stacks.
    pub fn new(before: &Stacks, after: &Stacks) -> StackDifference {
        let mut difference = StackDifference {
            tree: Stacks::default(),
            weights: Vec::new(),
            total: Sides { before: before.total(), after: after.total() },
        };
        before.for_each(|stack, weight| difference.add(stack, weight, |sides| &mut sides.before));
        after.for_each(|stack, weight| difference.add(stack, weight, |sides| &mut sides.after));
        difference
    }

    fn add(&mut self, stack: &str, weight: u64, side: impl Fn(&mut Sides<Weight>) -> &mut Weight) {
        let mut end = self.tree.root();
        for name in stack.split(';') {
            end = self.tree.child(end, Label::Name(name));
            if self.weights.len() <= end.0 {
                self.weights.resize_with(end.0 + 1, Sides::default);
            }
            side(&mut self.weights[end.0]).with_called += weight;
        }
        side(&mut self.weights[end.0]).own += weight;
    }

    /// Returns whether the later set is empty.
    pub fn is_without_later(&self) -> bool {
        self.total.after == 0
    }

    /// Returns the names of all frames.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.tree.names()
    }

    /// Returns the change of a stack's share that has the strongest colour in a picture, in percentage points: the largest one of
    /// stacks with a box that is not new, but at least [`STRONGEST`].
    pub fn strongest_change(&self) -> f64 {
        let compared = self.weights.iter().filter(|sides| sides.is_drawn() && !sides.is_new());
        let changes = compared
            .map(|Sides { before, after }| share(after.own, self.total.after) - share(before.own, self.total.before));
        changes.fold(STRONGEST, |largest, change| largest.max(change.abs()))
    }

    /// Returns the share of the later set that is in stacks which the earlier set does not have, in percent.
    pub fn new_share(&self) -> f64 {
        let new = self.weights.iter().filter(|sides| sides.is_new());
        share(new.map(|sides| sides.after.own).sum(), self.total.after)
    }

    /// Returns the share of the earlier set that is in stacks without a box in the picture of the later set, in percent.
    pub fn gone_share(&self) -> f64 {
        let gone = self.weights.iter().filter(|sides| !sides.is_drawn());
        share(gone.map(|sides| sides.before.own).sum(), self.total.before)
    }

    /// Returns folded text: in each line the frames, outermost first and separated by `;`, then the weight in the earlier
    /// set and the weight in the later set.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        self.tree.for_each_node(|stack, node| match self.weights[node.0] {
            Sides { before: Weight { own: 0, .. }, after: Weight { own: 0, .. } } => {}
            Sides { before, after } => lines.push(format!("{stack} {} {}", before.own, after.own)),
        });
        lines
    }

    /// Returns folded text of the boxes of the later set, a line for each box, because a box gets its colour from a line of its
    /// own. A new stack has only its weight. Other lines are like those of [`StackDifference::lines`], but the earlier weight
    /// is scaled so that both sets have about the same sum: the recordings may differ in length, so shares are compared.
    pub(super) fn boxes(&self) -> Vec<String> {
        let mut lines = Vec::new();
        self.tree.for_each_node(|stack, node| {
            let sides = self.weights[node.0];
            if !sides.is_drawn() {
                return;
            }
            let own = sides.after.own;
            let scaled =
                u128::from(sides.before.own) * u128::from(self.total.after) / u128::from(self.total.before.max(1));
            lines.push(if sides.is_new() { format!("{stack} {own}") } else { format!("{stack} {scaled} {own}") });
            if lines.len() == 1 {
                // Colours are relative to the largest change of a line. This line says the smallest one and adds no box.
                lines.push(format!("{stack} {} 0", (self.total.after as f64 * STRONGEST / 100.0) as u64));
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
    use crate::picture::{DrawError, FlameGraphStyle, draw_difference, stacks::stacks};

    fn picture(difference: &StackDifference) -> Result<String, DrawError> {
        let mut svg = Vec::new();
        draw_difference(difference, &FlameGraphStyle::default(), &mut svg)?;
        Ok(String::from_utf8(svg).unwrap())
    }

    /// Returns the colour of a function's box: red, green, blue.
    fn color(svg: &str, function: &str) -> [u8; 3] {
        let (_, from) = svg.split_once(&format!("<title>{function} (")).unwrap();
        let (_, from) = from.split_once("fill=\"rgb(").unwrap();
        let (numbers, _) = from.split_once(')').unwrap();
        let numbers: Vec<u8> = numbers.split(',').map(|number| number.parse().unwrap()).collect();
        numbers.try_into().unwrap()
    }

    /// Returns what a function's box says.
    fn hover<'a>(svg: &'a str, function: &str) -> &'a str {
        let (_, from) = svg.split_once(&format!("<title>{function} (")).unwrap();
        from.split_once(")</title>").unwrap().0
    }

    #[test]
    fn all_stacks_have_both_weights() {
        let difference = StackDifference::new(
            &stacks(&[("f/g", 10), ("gone", 5), ("f", 1)]),
            &stacks(&[("f/g", 7), ("f.part.0", 2), ("f/h", 1)]),
        );
        assert_eq!(difference.lines(), ["f 1 0", "f;g 10 7", "f;h 0 1", "f.part.0 0 2", "gone 5 0"]);
        assert_eq!(difference.boxes(), ["f 0 0", "f 0 0", "f;g 6 7", "f;h 1", "f.part.0 2"]);
        assert_eq!((difference.new_share(), difference.gone_share()), (30.0, 31.25));
    }

    #[test]
    fn shares_are_compared_and_not_weights() {
        // The second recording is ten times as long. `same` has half of the weight in both recordings.
        let before = stacks(&[("same", 50), ("more", 10), ("less", 40)]);
        let after = stacks(&[("same", 500), ("more", 400), ("less", 100)]);
        let difference = StackDifference::new(&before, &after);
        assert_eq!(difference.boxes(), ["less 400 100", "less 10 0", "more 100 400", "same 500 500"]);
        assert!((difference.strongest_change() - 30.0).abs() < 0.001, "{}", difference.strongest_change());
        let svg = picture(&difference).unwrap();
        let [[same_red, _, same_blue], [more_red, _, more_blue], [less_red, _, less_blue]] =
            ["same", "more", "less"].map(|function| color(&svg, function));
        assert_eq!((same_red, same_blue), (250, 250));
        assert!(more_red > more_blue && less_red < less_blue, "{svg}");
    }

    #[test]
    fn a_box_says_the_change_of_its_share_in_any_unit() {
        let before = stacks(&[("main/more", 10_000), ("main/less", 30_000)]);
        let after = stacks(&[("main/more", 60_000), ("main/less", 20_000)]);
        for (divisor, more) in [(1, "60,000 us"), (1000, "60 us")] {
            let mut svg = Vec::new();
            let look = FlameGraphStyle { count_name: "us".into(), divisor, ..FlameGraphStyle::default() };
            draw_difference(&StackDifference::new(&before, &after), &look, &mut svg).unwrap();
            let svg = String::from_utf8(svg).unwrap();
            assert_eq!(hover(&svg, "more"), format!("{more}, 75.00%; +50.00 points"));
            assert!(hover(&svg, "less").ends_with(", 25.00%; -50.00 points"));
            assert!(hover(&svg, "main").ends_with(", 100.00%; 0.00 points"));
        }
    }

    #[test]
    fn a_chain_that_the_earlier_set_does_not_have_is_no_increase() {
        // Only the name of a caller has changed.
        let before = stacks(&[("main/old/work", 60), ("main/other", 40)]);
        let after = stacks(&[("main/new/work", 60), ("main/other", 40)]);
        let difference = StackDifference::new(&before, &after);
        assert_eq!((difference.strongest_change(), difference.new_share(), difference.gone_share()), (1.0, 60.0, 60.0));
        let svg = picture(&difference).unwrap();
        let [main, new, work, other] = ["main", "new", "work", "other"].map(|function| color(&svg, function));
        assert_eq!((main, other), ([250; 3], [250; 3]));
        for [red, green, blue] in [new, work] {
            assert!(green < red && red < blue && green < 200, "not violet: {red} {green} {blue}");
        }
        assert!(hover(&svg, "work").ends_with(", 60.00%; new"), "{}", hover(&svg, "work"));
    }

    #[test]
    fn a_small_change_has_a_pale_colour() {
        let (before, after) = (stacks(&[("f", 5000), ("g", 5000)]), stacks(&[("f", 5010), ("g", 4990)]));
        let [_, paleness, _] = color(&picture(&StackDifference::new(&before, &after)).unwrap(), "f");
        assert!((230..250).contains(&paleness), "{paleness}");
    }

    #[test]
    fn large_weights_and_empty_sets_are_compared() {
        let (none, huge) = (Stacks::default(), stacks(&[("f", u64::MAX)]));
        assert_eq!(StackDifference::new(&huge, &huge).boxes()[0], format!("f {0} {0}", u64::MAX));
        assert_eq!(StackDifference::new(&none, &huge).boxes()[0], format!("f {}", u64::MAX));
        assert!(matches!(picture(&StackDifference::new(&huge, &none)), Err(DrawError::Empty)));
    }
}
