//! The columns of `perf script`: their names, and which of them the samples of an event can fill.

use std::str::FromStr;

use perf_prof_format::abi::{
    PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_CGROUP, PERF_SAMPLE_CPU, PERF_SAMPLE_IP, PERF_SAMPLE_RAW, PERF_SAMPLE_TID,
    PERF_SAMPLE_TIME, PERF_TYPE_HARDWARE, PERF_TYPE_RAW, PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT,
};

/// A column of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[allow(missing_docs, reason = "`NAMES` has the name of each column")]
pub enum Column {
    Comm = 1,
    Pid = 1 << 1,
    Tid = 1 << 2,
    Cpu = 1 << 3,
    Time = 1 << 4,
    Period = 1 << 5,
    Event = 1 << 6,
    Trace = 1 << 7,
    Ip = 1 << 8,
    Symbol = 1 << 9,
    Offset = 1 << 10,
    Dso = 1 << 11,
    Cgroup = 1 << 12,
}

use Column::*;

/// The names of the columns, as in perf.
const NAMES: [(&str, Column); 13] = [
    ("comm", Comm),
    ("pid", Pid),
    ("tid", Tid),
    ("cpu", Cpu),
    ("time", Time),
    ("period", Period),
    ("event", Event),
    ("trace", Trace),
    ("ip", Ip),
    ("sym", Symbol),
    ("symoff", Offset),
    ("dso", Dso),
    ("cgroup", Cgroup),
];

/// A set of columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns(u16);

impl Columns {
    /// Returns the names of all columns.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }

    const fn from_list(columns: &[Column]) -> Columns {
        let (mut set, mut at) = (0, 0);
        while at < columns.len() {
            set |= columns[at] as u16;
            at += 1;
        }
        Columns(set)
    }

    /// Returns whether the set has a column.
    #[inline]
    pub fn has(self, column: Column) -> bool {
        self.0 & column as u16 != 0
    }

    /// Returns whether the set has no column.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn without(self, others: Columns) -> Columns {
        Columns(self.0 & !others.0)
    }

    fn with(self, others: Columns) -> Columns {
        Columns(self.0 | others.0)
    }
}

const TRACEPOINT: Columns = Columns::from_list(&[Comm, Tid, Cpu, Time, Event, Trace]);
const SAMPLED: Columns = Columns::from_list(&[Comm, Tid, Cpu, Time, Period, Event, Ip, Symbol, Offset, Dso]);
const PLACE: Columns = Columns::from_list(&[Ip, Symbol, Offset, Dso]);

/// The columns that need a certain member of the samples. The column `period` needs no member: if the samples have no
/// period, the column shows the period in the attr.
const NEEDS: [(u64, Columns); 6] = [
    (PERF_SAMPLE_IP, PLACE),
    (PERF_SAMPLE_TID, Columns::from_list(&[Pid, Tid])),
    (PERF_SAMPLE_CPU, Columns::from_list(&[Cpu])),
    (PERF_SAMPLE_TIME, Columns::from_list(&[Time])),
    (PERF_SAMPLE_RAW, Columns::from_list(&[Trace])),
    (PERF_SAMPLE_CGROUP, Columns::from_list(&[Cgroup])),
];

/// The types of events that a list of columns may name, as perf names them. Events of the last type are made by perf itself,
/// from hardware traces.
const TYPES: [(&str, Option<u32>); 5] = [
    ("hw", Some(PERF_TYPE_HARDWARE)),
    ("sw", Some(PERF_TYPE_SOFTWARE)),
    ("trace", Some(PERF_TYPE_TRACEPOINT)),
    ("raw", Some(PERF_TYPE_RAW)),
    ("synth", None),
];

/// A list of columns, for example `time,event` or `+pid,-cpu`. `trace:comm,time` is a list for one type of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldList {
    events: OfEvents,
    fields: Listed,
}

/// The events that a list of columns is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfEvents {
    All,
    /// Events with this `type` in their attr.
    OfType(u32),
    None,
}

/// The columns of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    /// These columns replace the default ones.
    Only(Columns),
    /// The columns in `more` are added to the columns of an event, and those in `less` are removed.
    Changed { more: Columns, less: Columns },
}

impl FieldList {
    fn applied_to(self, kind: u32, columns: Columns) -> Columns {
        match (self.events, self.fields) {
            (OfEvents::None, _) => columns,
            (OfEvents::OfType(of), _) if of != kind => columns,
            (_, Listed::Only(only)) => only,
            (_, Listed::Changed { more, less }) => columns.with(more).without(less),
        }
    }
}

/// Why a list of columns is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldsError {
    /// No column has this name.
    #[error("there is no field `{0}`; the fields are {names}", names = NAMES.map(|(name, _)| name).join(", "))]
    Unknown(String),
    /// No type of events has this name.
    #[error("`{0}:` is no type of events; the types are {names}", names = TYPES.map(|(name, _)| name).join(", "))]
    UnknownType(String),
    /// Some names have a `+` or `-` in front, and others do not.
    #[error("`{0}`: write + or - before every field to change the default fields, or before no field to replace them")]
    Mixed(String),
}

impl FromStr for FieldList {
    type Err = FieldsError;

    fn from_str(text: &str) -> Result<Self, FieldsError> {
        let (events, list) = match text.split_once(':') {
            None => (OfEvents::All, text),
            Some((name, list)) => {
                let found = TYPES.iter().find(|(known, _)| *known == name.trim());
                let (_, kind) = found.ok_or_else(|| FieldsError::UnknownType(name.to_owned()))?;
                (kind.map_or(OfEvents::None, OfEvents::OfType), list)
            }
        };
        if events != OfEvents::All && list.trim().is_empty() {
            // As in perf: events with an empty list print no lines.
            return Ok(FieldList { events, fields: Listed::Only(Columns::default()) });
        }
        let (mut only, mut more, mut less) = (0u16, 0u16, 0u16);
        for item in list.split(',').map(str::trim) {
            let (set, name) = match item.split_at_checked(1) {
                Some(("+", name)) => (&mut more, name),
                Some(("-", name)) => (&mut less, name),
                _ => (&mut only, item),
            };
            let column = NAMES.iter().find(|(known, _)| *known == name);
            *set |= column.ok_or_else(|| FieldsError::Unknown(name.to_owned()))?.1 as u16;
        }
        let fields = match (only, more | less) {
            (0, _) => Listed::Changed { more: Columns(more), less: Columns(less) },
            (only, 0) => Listed::Only(Columns(only)),
            _ => return Err(FieldsError::Mixed(text.to_owned())),
        };
        Ok(FieldList { events, fields })
    }
}

/// Returns the columns of each event. An event is given by the `type` and the `sample_type` of its attr. Each list changes
/// the result of the lists before it. Events without columns print no lines.
///
/// Follows perf's rules (`perf_session__check_output_opt()` in `tools/perf/builtin-script.c`). All events of a type have the
/// same columns. A column is removed if the first event of the type lacks the member that the column needs. If one
/// tracepoint has call chains, all tracepoints also get the columns of the instruction (`ip`, `sym`, `symoff` and `dso`).
pub fn columns(events: &[(u32, u64)], lists: &[FieldList]) -> Vec<Columns> {
    let of = |kind: u32| {
        let mut of_kind = events.iter().filter(|event| event.0 == kind);
        let mut columns = if kind == PERF_TYPE_TRACEPOINT { TRACEPOINT } else { SAMPLED };
        if of_kind.clone().any(|event| event.1 & PERF_SAMPLE_CALLCHAIN != 0) {
            columns = columns.with(PLACE);
        }
        columns = lists.iter().fold(columns, |columns, list| list.applied_to(kind, columns));
        let sample_type = of_kind.next().map_or(0, |event| event.1);
        let missing = NEEDS.iter().filter(|(bit, _)| sample_type & bit == 0);
        missing.fold(columns, |columns, (_, needing)| columns.without(*needing))
    };
    events.iter().map(|&(kind, _)| of(kind)).collect()
}

#[cfg(test)]
mod tests {
    use perf_prof_format::abi::{PERF_SAMPLE_PERIOD, PERF_TYPE_SOFTWARE};

    use super::*;

    const ALL: u64 =
        PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_CPU | PERF_SAMPLE_TIME | PERF_SAMPLE_PERIOD | PERF_SAMPLE_RAW;

    #[track_caller]
    fn check(events: &[(u32, u64)], fields: &str, expected: &[&str]) {
        let lists: Vec<FieldList> = fields.split_whitespace().map(|list| list.parse().unwrap()).collect();
        let shown = |columns: &Columns| {
            let named = NAMES.iter().filter(|(_, column)| columns.has(*column));
            named.map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(columns(events, &lists).iter().map(shown).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn events_of_a_type_have_the_columns_that_its_first_one_fills() {
        let (tracepoint, software) = (PERF_TYPE_TRACEPOINT, PERF_TYPE_SOFTWARE);
        check(&[(tracepoint, ALL)], "", &["comm tid cpu time event trace"]);
        check(
            &[(software, ALL & !PERF_SAMPLE_CPU), (software, ALL)],
            "",
            &["comm tid time period event ip sym symoff dso"; 2],
        );
        check(
            &[(tracepoint, ALL), (tracepoint, ALL | PERF_SAMPLE_CALLCHAIN)],
            "",
            &["comm tid cpu time event trace ip sym symoff dso"; 2],
        );
    }

    /// With `perf record -c N`, samples contain no period.
    #[test]
    fn samples_without_a_period_show_the_period_of_the_attr() {
        check(
            &[(PERF_TYPE_SOFTWARE, ALL & !PERF_SAMPLE_PERIOD)],
            "",
            &["comm tid cpu time period event ip sym symoff dso"],
        );
    }

    #[test]
    fn fields_replace_or_change_the_columns() {
        check(&[(PERF_TYPE_TRACEPOINT, ALL)], "time,trace", &["time trace"]);
        check(&[(PERF_TYPE_TRACEPOINT, ALL)], "+pid,-cpu,-trace", &["comm pid tid time event"]);
        check(&[(PERF_TYPE_TRACEPOINT, 0)], "pid,time,event", &["event"]);
        let error = |list: &str| list.parse::<FieldList>().unwrap_err();
        assert_eq!(error("time,x"), FieldsError::Unknown("x".into()));
        assert_eq!(error("time,+cpu"), FieldsError::Mixed("time,+cpu".into()));
        assert_eq!(error(""), FieldsError::Unknown("".into()));
        assert_eq!(error("-trace:comm"), FieldsError::UnknownType("-trace".into()));
    }

    #[test]
    fn lists_apply_in_their_order_to_the_events_of_their_type() {
        let events = [(PERF_TYPE_TRACEPOINT, ALL), (PERF_TYPE_SOFTWARE, ALL)];
        check(&events, "comm,pid +ip", &["comm pid ip"; 2]);
        check(&events, "+pid comm", &["comm"; 2]);
        check(&events, "comm,tid trace:+trace,-tid", &["comm trace", "comm tid"]);
        check(&events, "trace:time sw:event,ip hw:comm raw:comm synth:comm", &["time", "event ip"]);
        check(&events, "time sw:", &["time", ""]);
    }
}
