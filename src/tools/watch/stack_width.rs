//! Places call chains in a table. On a terminal, a chain is shortened to the innermost frames that fit into the line. All
//! kernel frames except one are left out first, because they are functions of the scheduler. The program's functions show
//! where the program waits. In files and pipes, chains are whole.

use perf_prof_events::{aggregate::Report, picture::KERNEL_SUFFIX};
use perf_prof_system::output::terminal_size;

/// The minimum width of a call chain.
const NARROWEST: usize = 40;
/// The space between two columns.
const BETWEEN: usize = 2;
/// The text that replaces outer frames.
const OUTER: &str = "...;";
/// The text that replaces other frames.
const LEFT_OUT: &str = "...";

/// Whether the last column of a table may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastColumn {
    /// It stays.
    Needed,
    /// It is left out on a terminal that is too narrow for it.
    Optional,
}

/// Shortens the call chains in these columns, so that a row fits into a line of the terminal. Without a terminal, moves
/// these columns to the end of the table, because nobody would find a column after a whole call chain.
pub(super) fn fit(report: &mut Report, stacks: &[usize], last: LastColumn) {
    let Some((columns, _)) = terminal_size() else { return move_to_the_end(report, stacks) };
    if last == LastColumn::Optional {
        leave_out_last(report, stacks, columns);
    }
    fit_into(report, stacks, columns);
}

/// Returns the widths of the columns, with the space between them.
fn widths(report: &Report) -> Vec<usize> {
    let count = |text: &String| text.chars().count();
    let widest = |(at, (title, _)): (usize, &(String, _))| {
        let cells = report.rows.iter().filter_map(|row| row.get(at)).map(count).max();
        cells.unwrap_or(0).max(count(title)) + BETWEEN
    };
    report.columns.iter().enumerate().map(widest).collect()
}

/// Leaves out the last column if the table does not fit with the narrowest call chains.
fn leave_out_last(report: &mut Report, stacks: &[usize], width: usize) {
    let narrowest = |(at, of_column): (usize, usize)| {
        if stacks.contains(&at) { of_column.min(NARROWEST + BETWEEN) } else { of_column }
    };
    if widths(report).into_iter().enumerate().map(narrowest).sum::<usize>() > width + BETWEEN {
        report.columns.pop();
        report.rows.iter_mut().for_each(|row| drop(row.pop()));
    }
}

fn move_to_the_end(report: &mut Report, stacks: &[usize]) {
    fn moved<T: Clone>(cells: &[T], stacks: &[usize]) -> Vec<T> {
        let others = (0..cells.len()).filter(|at| !stacks.contains(at));
        others.chain(stacks.iter().copied()).filter_map(|at| cells.get(at).cloned()).collect()
    }
    report.columns = moved(&report.columns, stacks);
    report.rows = report.rows.iter().map(|row| moved(row, stacks)).collect();
}

fn fit_into(report: &mut Report, stacks: &[usize], width: usize) {
    if stacks.is_empty() {
        return;
    }
    let others = widths(report).into_iter().enumerate().filter(|(at, _)| !stacks.contains(at));
    let others: usize = others.map(|(_, width)| width).sum();
    let room = (width.saturating_sub(others) / stacks.len()).max(NARROWEST);
    let mut is_cut = false;
    for &at in stacks {
        let chains: Vec<&str> = report.rows.iter().filter_map(|row| Some(row.get(at)?.as_str())).collect();
        let shared = shared_frames(&chains, room);
        for cell in report.rows.iter_mut().filter_map(|row| row.get_mut(at)) {
            if let Some(shorter) = shortened(cell, shared, room) {
                *cell = shorter;
                is_cut = true;
            }
        }
    }
    if is_cut {
        report.notes.push(
            "(stack: the innermost frames that fit, innermost last; `...` replaces others; --json and pipes show all frames)"
                .to_owned(),
        );
    }
}

/// Returns how many innermost kernel frames all chains that do not fit have in common. These frames belong to the scheduler
/// or to the event. Returns 0 for a single chain, because it cannot be compared.
fn shared_frames(chains: &[&str], room: usize) -> usize {
    let mut long = chains.iter().filter(|chain| chain.chars().count() > room);
    let Some(first) = long.next() else { return 0 };
    let kernel = |chain: &str| chain.rsplit(';').take_while(|frame| frame.ends_with(KERNEL_SUFFIX)).count();
    let common = |one: &str, other: &str| one.rsplit(';').zip(other.rsplit(';')).take_while(|(a, b)| a == b).count();
    let mut others = long.peekable();
    if others.peek().is_none() {
        return 0;
    }
    others.map(|other| common(first, other)).min().unwrap_or(0).min(kernel(first).saturating_sub(1))
}

/// Shortens a chain that does not fit. Leaves out the innermost `shared` frames. Keeps one of the other kernel frames,
/// and as many of the program's innermost frames as fit. Returns `None` if the chain fits.
fn shortened(chain: &str, shared: usize, room: usize) -> Option<String> {
    if chain.chars().count() <= room {
        return None;
    }
    let mut frames: Vec<&str> = chain.split(';').collect();
    frames.truncate(frames.len().saturating_sub(shared).max(1));
    let of_program = frames.iter().rposition(|frame| !frame.ends_with(KERNEL_SUFFIX)).map_or(0, |at| at + 1);
    let rest = frames.join(";");
    if of_program > 0 && frames.len() > of_program + 2 && rest.chars().count() > room {
        frames.splice(of_program..frames.len() - 1, [LEFT_OUT]);
    }
    let frames = frames.join(";");
    innermost(&frames, room).or(Some(frames)).filter(|short| short.len() < chain.len())
}

/// Returns the innermost frames that fit, at least one. Returns `None` if all frames fit.
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
    if inner.starts_with(OUTER) {
        return Some(inner);
    }
    (inner.len() < chain.len()).then(|| format!("{OUTER}{inner}"))
}

#[cfg(test)]
mod tests {
    use perf_prof_events::aggregate::Align;

    use super::*;

    #[test]
    fn whole_call_chains_are_the_last_columns() {
        let columns = ["stack", "comm", "count"].map(|name| (name.to_owned(), Align::Left)).to_vec();
        let rows = vec![["main;f", "make", "7"].map(str::to_owned).to_vec()];
        let mut report = Report { columns, rows, notes: Vec::new() };
        move_to_the_end(&mut report, &[0]);
        assert_eq!(report.text(), "comm  count  stack\nmake  7      main;f");
    }

    #[test]
    fn the_last_column_is_left_out_where_the_table_does_not_fit() {
        let titles = |width: usize| {
            let columns = ["stack", "count", "since start"].map(|name| (name.to_owned(), Align::Right)).to_vec();
            let rows = vec![["f;".repeat(50), "7".to_owned(), "8".to_owned()].to_vec()];
            // Notes may be wider than the table.
            let mut report = Report { columns, rows, notes: vec!["n".repeat(200)] };
            leave_out_last(&mut report, &[0], width);
            assert!(report.rows.iter().all(|row| row.len() == report.columns.len()));
            report.columns.into_iter().map(|(title, _)| title).collect::<Vec<_>>().join(" ")
        };
        let narrowest = NARROWEST + "  count  since start".len();
        assert_eq!([narrowest - 1, narrowest].map(titles), ["stack count", "stack count since start"]);
    }

    #[test]
    fn the_innermost_frames_are_kept() {
        assert_eq!(innermost("main;f;g", 8), None);
        assert_eq!(innermost("main;f;g", 7).as_deref(), Some("...;f;g"));
        assert_eq!(innermost("main;f;g", 6).as_deref(), Some("...;g"));
        // Names are never cut, because the rest could be the name of another function.
        assert_eq!(innermost("main;very_long_name", 6).as_deref(), Some("...;very_long_name"));
        assert_eq!(innermost("very_long_name", 6), None);
    }

    /// All waits end in the same functions of the scheduler, so the program's functions are shown.
    #[test]
    fn of_long_chains_the_frames_of_the_program_are_shown() {
        let kernel = "entry_[k];do_syscall_64_[k];futex_[k];futex_wait_[k];schedule_[k];__schedule_[k]";
        let chain = |function: &str| format!("_start;main;{function};pthread_mutex_lock;{kernel}");
        let (one, other) = (chain("update_index"), chain("slow_flush"));
        let shared = shared_frames(&[&one, &other, "short"], 60);
        assert_eq!(shared, 5);
        let read = chain("read_ahead").replace("futex", "io");
        assert_eq!(shared_frames(&[&one, &read], 60), 2);
        assert_eq!((shared_frames(&[&one, "short"], 60), shared_frames(&["short"], 60)), (0, 0));
        let short = |chain: &str, shared| shortened(chain, shared, 60).unwrap();
        assert_eq!(short(&one, 5), "_start;main;update_index;pthread_mutex_lock;entry_[k]");
        assert_eq!(short(&one, 2), "...;main;update_index;pthread_mutex_lock;...;futex_wait_[k]");
        assert_eq!(short(&read, 2), "_start;main;read_ahead;pthread_mutex_lock;...;io_wait_[k]");
        assert_eq!(shortened(&one, 2, 20).as_deref(), Some("...;futex_wait_[k]"));
        // A chain of kernel frames only is cut to its innermost frames.
        assert_eq!(shortened("a_[k];b_[k];c_[k];d_[k]", 1, 10).as_deref(), Some("...;c_[k]"));
        assert_eq!(shortened(&one, 0, 500), None);
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
