//! The difference of two sets of stacks, for example of a program before and after a change.

use std::collections::HashMap;

use super::{Label, Stacks};

/// The stacks of two sets, each stack with its weight in both sets.
#[derive(Debug)]
pub struct StackDifference {
    /// The stacks, each with its weight in the earlier set and in the later set. Their order is such that each function
    /// becomes one box.
    stacks: Vec<(String, u64, u64)>,
    before: u64,
    after: u64,
}

impl StackDifference {
    /// Compares two sets of stacks.
    pub fn new(before: &Stacks, after: &Stacks) -> StackDifference {
        let mut weights: HashMap<String, (u64, u64)> = HashMap::new();
        let mut order = Stacks::default();
        let mut add_stack = |stack: &str, add: &dyn Fn(&mut (u64, u64))| {
            add(weights.entry(stack.to_owned()).or_default());
            let root = order.root();
            let end = stack.split(';').fold(root, |caller, name| order.child(caller, Label::Name(name)));
            // A weight of 1 only adds the stack to the order, so the sum of weights cannot overflow.
            let _ = order.add_weight(end, 1);
        };
        before.for_each(|stack, weight| add_stack(stack, &|sums| sums.0 += weight));
        after.for_each(|stack, weight| add_stack(stack, &|sums| sums.1 += weight));
        let mut stacks = Vec::with_capacity(weights.len());
        order.for_each(|stack, _| {
            let (before, after) = weights.get(stack).copied().unwrap_or_default();
            stacks.push((stack.to_owned(), before, after));
        });
        StackDifference { stacks, before: before.total(), after: after.total() }
    }

    /// Returns whether the later set is empty.
    pub fn is_without_later(&self) -> bool {
        self.after == 0
    }

    /// Returns the largest change of a stack's share, in percentage points. It has the strongest colour in a picture.
    pub fn largest_change(&self) -> f64 {
        let share = |weight: u64, of: u64| weight as f64 * 100.0 / of.max(1) as f64;
        let changes =
            self.stacks.iter().map(|(_, before, after)| share(*after, self.after) - share(*before, self.before));
        changes.fold(0.0, |largest, change| largest.max(change.abs()))
    }

    /// Returns folded text: in each line the frames, outermost first and separated by `;`, then the weight in the earlier
    /// set and the weight in the later set.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.stacks.iter().map(|(stack, before, after)| format!("{stack} {before} {after}"))
    }

    /// Like [`StackDifference::lines`], but scales the earlier weights so that both sets have about the same sum. The
    /// recordings may differ in length, so shares are compared.
    pub fn scaled_lines(&self) -> impl Iterator<Item = String> {
        self.stacks.iter().map(|(stack, before, after)| {
            let scaled = u128::from(*before) * u128::from(self.after) / u128::from(self.before.max(1));
            format!("{stack} {scaled} {after}")
        })
    }
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

    #[test]
    fn all_stacks_have_both_weights() {
        let difference = StackDifference::new(
            &stacks(&[("f/g", 10), ("gone", 5), ("f", 1)]),
            &stacks(&[("f/g", 7), ("f.part.0", 2), ("f/h", 1)]),
        );
        let lines: Vec<String> = difference.lines().collect();
        assert_eq!(lines, ["f 1 0", "f;g 10 7", "f;h 0 1", "f.part.0 0 2", "gone 5 0"]);
    }

    #[test]
    fn shares_are_compared_and_not_weights() {
        // The second recording is ten times as long. `same` has half of the weight in both recordings.
        let before = stacks(&[("same", 50), ("more", 10), ("less", 40)]);
        let after = stacks(&[("same", 500), ("more", 400), ("less", 100)]);
        let difference = StackDifference::new(&before, &after);
        let scaled: Vec<String> = difference.scaled_lines().collect();
        assert_eq!(scaled, ["less 400 100", "more 100 400", "same 500 500"]);
        assert!((difference.largest_change() - 30.0).abs() < 0.001, "{}", difference.largest_change());
        let svg = picture(&difference).unwrap();
        let [[same_red, _, same_blue], [more_red, _, more_blue], [less_red, _, less_blue]] =
            ["same", "more", "less"].map(|function| color(&svg, function));
        assert_eq!((same_red, same_blue), (250, 250));
        assert!(more_red > more_blue && less_red < less_blue, "{svg}");
    }

    #[test]
    fn large_weights_and_empty_sets_are_compared() {
        let (none, huge) = (Stacks::default(), stacks(&[("f", u64::MAX)]));
        assert_eq!(
            StackDifference::new(&huge, &huge).scaled_lines().collect::<Vec<_>>(),
            [format!("f {0} {0}", u64::MAX)]
        );
        assert_eq!(
            StackDifference::new(&none, &huge).scaled_lines().collect::<Vec<_>>(),
            [format!("f 0 {}", u64::MAX)]
        );
        assert!(matches!(picture(&StackDifference::new(&huge, &none)), Err(DrawError::Empty)));
    }
}
