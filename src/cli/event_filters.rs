//! The option `--filter` of commands that open live events. As in perf, `--filter` applies to the events of the last
//! `-e` before it.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use perf_prof_format::spec::{EventKind, EventSpec, parse_events};
use perf_prof_session::selectors::with_system_calls;

use super::option_error::OptionError;

/// The filters of a command line. Each filter comes with the number of options `-e` before it.
///
/// In the struct of a command, the field with the filters must come before the field with the events. The positions of
/// `-e` are needed to read the filters, and clap forgets the positions when it reads the events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilters(Vec<(usize, String)>);

impl EventFilters {
    /// Returns the first filter, if there is one.
    #[cfg(feature = "python")]
    pub fn first(&self) -> Option<&str> {
        self.0.first().map(|(_, filter)| filter.as_str())
    }

    /// Returns the events of all lists of `-e`, with their filters. If an event has several filters, it must pass all
    /// of them, as in perf. The name of a system call is replaced by the events of this system call.
    pub fn events(&self, lists: &[String]) -> Result<Vec<EventSpec>, OptionError> {
        if let Some((_, filter)) = self.0.iter().find(|(lists_before, _)| *lists_before == 0) {
            return Err(OptionError::FilterBeforeEvent(filter.clone()));
        }
        let mut all = Vec::new();
        for (number, list) in (1..).zip(lists) {
            let mut events = parse_events(list)?;
            for (_, filter) in self.0.iter().filter(|(lists_before, _)| *lists_before == number) {
                events.iter_mut().try_for_each(|event| add(event, filter))?;
            }
            all.append(&mut events);
        }
        Ok(with_system_calls(all)?)
    }
}

fn add(event: &mut EventSpec, filter: &str) -> Result<(), OptionError> {
    if !matches!(event.kind, EventKind::Tracepoint { .. } | EventKind::Probe(_)) {
        return Err(OptionError::FilterOfOtherEvent(event.selector.clone()));
    }
    event.filter = Some(match event.filter.take() {
        Some(first) => format!("({first}) && ({filter})"),
        None => filter.to_owned(),
    });
    Ok(())
}

impl Args for EventFilters {
    fn augment_args(command: Command) -> Command {
        let help =
            "Only events for which FILTER is true, for example 'prev_pid>0'; for the tracepoints of the -e before it";
        let filter = Arg::new("filters").long("filter").value_name("FILTER").action(ArgAction::Append).help(help);
        // In the help text, this option comes after -e.
        command.arg(filter.display_order(1))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for EventFilters {
    /// Reads the positions of `--filter` and of `-e`. The id of `-e` is `events` in all commands.
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let indices = |id| matches.indices_of(id).into_iter().flatten().collect::<Vec<usize>>();
        let lists = indices("events");
        let filters = matches.get_many::<String>("filters").into_iter().flatten().cloned();
        let number = |at: usize| lists.iter().filter(|&&list| list < at).count();
        Ok(EventFilters(indices("filters").into_iter().map(number).zip(filters).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use expect_test::{Expect, expect};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        filters: EventFilters,
        #[arg(short)]
        events: Vec<String>,
    }

    #[track_caller]
    fn check(args: &[&str], expected: Expect) {
        let line = Line::try_parse_from(["x"].iter().chain(args)).unwrap();
        let shown = match line.filters.events(&line.events) {
            Ok(events) => events.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(error) => format!("error: {error}"),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn filters_apply_to_the_events_of_the_last_list_before_them() {
        check(&["-e", "a:b,a:c", "--filter", "x>0"], expect!["a:b/x>0/ a:c/x>0/"]);
        check(
            &["-e", "a:b", "-e", "a:c", "--filter", "x>0", "--filter=y<1 || z", "-ea:d"],
            expect!["a:b a:c/(x>0) && (y<1 || z)/ a:d"],
        );
        check(&["-e", "a:b/x==1/", "--filter", "y"], expect!["a:b/(x==1) && (y)/"]);
        check(&["-e", "{a:b,a:c}", "--filter", "x"], expect!["a:b/x/ a:c/x/"]);
        check(
            &["-e", "a:b", "--filter", "x", "-e", "fsync", "-e", "read"],
            expect!["a:b/x/ syscall//name=fsync|read/"],
        );
    }

    #[test]
    fn misplaced_filters_are_refused() {
        check(
            &["--filter", "x>0", "-e", "a:b"],
            expect![
                "error: --filter 'x>0' comes before the first -e: write it after the -e of the tracepoints that it filters"
            ],
        );
        check(
            &["-e", "a:b,cpu-clock", "--filter", "x>0"],
            expect![
                "error: --filter cannot be applied to `cpu-clock`: only tracepoints have fields; use an -e of its own for \
                 the tracepoints, and write --filter after it"
            ],
        );
    }
}
