//! Does the same work for several items, each in a thread of its own, so that waits for the kernel or a disk overlap.

use std::{panic, thread};

use super::own_threads;

/// Does the work for each item, and returns the results in the order of the items. A single item gets no thread.
pub fn together<T: Send, R: Send>(items: &mut [T], work: impl Fn(&mut T) -> R + Sync) -> Vec<R> {
    let work = &work;
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    if items.len() > 1 {
        thread::scope(|scope| {
            let started =
                items.iter_mut().map(|item| own_threads::spawn_scoped(scope, "perf-prof-part", move || work(item)));
            let started: Vec<_> = started.collect();
            for (result, thread) in results.iter_mut().zip(started) {
                // If a thread cannot be started, its item has no result yet. The code below then does the work for this
                // item.
                *result = thread.ok().map(|thread| thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
            }
        });
    }
    let of_item = |(item, result): (&mut T, Option<R>)| result.unwrap_or_else(|| work(item));
    items.iter_mut().zip(results).map(of_item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for count in [0, 1, 2, 10] {
            let mut items: Vec<u32> = (0..count).collect();
            let results = together(&mut items, |item| {
                *item += 1;
                *item * 2
            });
            assert!(items.iter().copied().eq(1..=count));
            assert!(results.into_iter().eq((1..=count).map(|item| item * 2)));
        }
    }
}
