//! Call chains in a table: as many of the innermost frames as fit into the line.

use crate::{aggregate::Report, sys::output::terminal_size};

/// The width of a table that is not shown on a terminal.
const WIDTH: usize = 120;
/// The width that a call chain has at least.
const NARROWEST: usize = 40;
/// What stands for the frames that are left out.
const OUTER: &str = "...;";

/// Shortens the call chains in these columns, so that a row fits into a line of the terminal.
pub(super) fn fit(report: &mut Report, stacks: &[usize]) {
    fit_into(report, stacks, terminal_size().map_or(WIDTH, |(columns, _)| columns));
}

fn fit_into(report: &mut Report, stacks: &[usize], width: usize) {
    if stacks.is_empty() {
        return;
    }
    let count = |text: &String| text.chars().count();
    let widest = |(at, (title, _)): (usize, &(String, _))| {
        let cells = report.rows.iter().filter_map(|row| row.get(at)).map(count).max();
        cells.unwrap_or(0).max(count(title)) + 2
    };
    let others: usize =
        report.columns.iter().enumerate().filter(|(at, _)| !stacks.contains(at)).map(widest).sum::<usize>();
    let room = (width.saturating_sub(others) / stacks.len()).max(NARROWEST);
    let mut is_cut = false;
    for row in &mut report.rows {
        for &at in stacks {
            if let Some(cell) = row.get_mut(at)
                && let Some(inner) = innermost(cell, room)
            {
                *cell = inner;
                is_cut = true;
            }
        }
    }
    if is_cut {
        report.notes.push("(stack: the innermost frames, the innermost last; --json prints all frames)".to_owned());
    }
}

/// Returns the innermost frames that fit, at least one. `None` if all frames fit.
fn innermost(chain: &str, room: usize) -> Option<String> {
    if chain.chars().count() <= room {
        return None;
    }
    let mut used = OUTER.len();
    let mut kept: Vec<&str> = Vec::new();
    for frame in chain.rsplit(';') {
        used += frame.chars().count() + usize::from(!kept.is_empty());
        if used > room && !kept.is_empty() {
            break;
        }
        kept.push(frame);
    }
    kept.reverse();
    let inner = kept.join(";");
    (inner.len() < chain.len()).then(|| format!("{OUTER}{inner}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::Align;

    #[test]
    fn the_innermost_frames_are_kept() {
        assert_eq!(innermost("main;f;g", 8), None);
        assert_eq!(innermost("main;f;g", 7).as_deref(), Some("...;f;g"));
        assert_eq!(innermost("main;f;g", 6).as_deref(), Some("...;g"));
        // A name is never cut, because half a name is the name of something else.
        assert_eq!(innermost("main;very_long_name", 6).as_deref(), Some("...;very_long_name"));
        assert_eq!(innermost("very_long_name", 6), None);
    }

    #[test]
    fn a_row_with_a_call_chain_fits_into_the_line() {
        let columns = vec![("stack".to_owned(), Align::Left), ("count".to_owned(), Align::Right)];
        let chain: Vec<String> = (0..30).map(|frame| format!("frame{frame}")).collect();
        let rows = vec![vec![chain.join(";"), "7".to_owned()], vec!["main".to_owned(), "1".to_owned()]];
        let mut report = Report { columns, rows, notes: Vec::new() };
        fit_into(&mut report, &[0], 60);
        let text = report.text();
        assert!(text.lines().take(3).all(|line| line.chars().count() <= 60), "{text}");
        assert!(report.rows[0][0].starts_with("...;frame2") && report.rows[0][0].ends_with(";frame29"), "{text}");
        assert_eq!((report.rows[1][0].as_str(), report.notes.len()), ("main", 1));
    }
}
