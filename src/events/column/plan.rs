//! Columns resolved for event types: the type of each column, and how it is read from records.

use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use perf_prof_format::{
    record::{MemberType, SampleMember},
    spec::{did_you_mean_quoted, similar_names},
};
use thiserror::Error;

use super::{cell::Cell, column_type::ColumnType};
use crate::event::{
    EventType, Sample, has_callchain,
    reader::{ReadError, names},
};

/// The name of the column that holds the addresses of call chains.
pub(super) const CALLCHAIN: &str = "_callchain";

/// The columns that come first. The fields of the events follow.
const FIRST: [&str; 6] = ["_event", "_time", "_cpu", "_pid", "_tid", "_comm"];

/// The columns of several event types.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) types: Vec<EventType>,
    pub(super) columns: Vec<ColumnPlan>,
    /// The names and Arrow types of the columns.
    pub schema: SchemaRef,
    /// Whether reading the columns needs the functions of addresses.
    pub needs_symbols: bool,
    /// Whether a column holds times of the wall clock.
    pub needs_realtime: bool,
}

#[derive(Clone, Debug)]
pub(super) struct ColumnPlan {
    pub ty: ColumnType,
    /// How the column is read from each event type.
    pub cells: Vec<Cell>,
}

/// Why a name cannot be a column.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// No event has a field or member with this name.
    #[error("no event has a field or member `{name}`{}", did_you_mean_quoted(.similar))]
    Unknown {
        /// The name.
        name: String,
        /// Names that the user may have meant.
        similar: Vec<String>,
    },
    /// No event has call chains.
    #[error("no event has call chains for `{name}`: record with -g, or write EVENT//stack/")]
    NoCallchain {
        /// The name.
        name: String,
    },
    /// No event has a cgroup.
    #[error("no event has a cgroup in its samples, which `{name}` needs: use --all-cgroups, also with `record`")]
    NoCgroup {
        /// The name.
        name: String,
    },
    /// The member has several values.
    #[error("`{name}` has several values, so it cannot be a column")]
    Several {
        /// The name.
        name: String,
    },
    /// A column is named twice.
    #[error("the column `{name}` is named twice")]
    Twice {
        /// The name.
        name: String,
    },
}

impl Plan {
    /// Resolves columns for event types. If `columns` is `None`, all fields become columns. `is_delivered` says for
    /// each event type whether its samples become rows.
    pub fn new(columns: Option<&[String]>, types: &[EventType], is_delivered: &[bool]) -> Result<Plan, PlanError> {
        let has_rows = |at: usize| is_delivered.get(at).copied().unwrap_or(true);
        let of_rows: Vec<&EventType> =
            types.iter().enumerate().filter(|(at, _)| has_rows(*at)).map(|(_, event)| event).collect();
        let columns = match columns {
            Some(columns) => columns.to_vec(),
            None => all(&of_rows),
        };
        let mut fields: Vec<Field> = Vec::with_capacity(columns.len());
        let mut plans = Vec::with_capacity(columns.len());
        for name in columns {
            if fields.iter().any(|field| *field.name() == name) {
                return Err(PlanError::Twice { name });
            }
            let resolved = types.iter().enumerate().map(|(at, event)| match has_rows(at) {
                true => Cell::resolve(&name, event),
                false => Err(ReadError::Unknown),
            });
            let resolved: Vec<Result<(Cell, ColumnType), ReadError>> = resolved.collect();
            let found = resolved.iter().flatten().map(|(_, ty)| *ty).reduce(ColumnType::with);
            let Some(ty) = found else { return Err(error(name, &of_rows, resolved)) };
            let cells = resolved.into_iter().map(|cell| cell.map_or(Cell::Null, |(cell, _)| cell)).collect();
            fields.push(Field::new(name, ty.data_type(), true));
            plans.push(ColumnPlan { ty, cells });
        }
        let needs_symbols = plans.iter().any(|plan| plan.cells.iter().any(Cell::needs_symbols));
        let needs_realtime = plans.iter().any(|plan| plan.cells.iter().any(Cell::needs_realtime));
        let schema = Arc::new(Schema::new(fields));
        Ok(Plan { types: types.to_vec(), columns: plans, schema, needs_symbols, needs_realtime })
    }
}

fn error(name: String, types: &[&EventType], resolved: Vec<Result<(Cell, ColumnType), ReadError>>) -> PlanError {
    // Prefer the error of an event that has the name: it says more than "unknown".
    let errors = resolved.into_iter().filter_map(Result::err);
    match errors.max_by_key(|error| *error != ReadError::Unknown).unwrap_or(ReadError::Unknown) {
        ReadError::Unknown => {
            let mut known: Vec<String> = types.iter().flat_map(|event| names(event)).collect();
            known.sort_unstable();
            known.dedup();
            PlanError::Unknown { similar: similar_names(&name, known), name }
        }
        ReadError::NoCallchain => PlanError::NoCallchain { name },
        ReadError::NoCgroup => PlanError::NoCgroup { name },
        ReadError::Several => PlanError::Several { name },
    }
}

/// Returns the names of all columns: those of all events, then the fields of each event in turn.
fn all(types: &[&EventType]) -> Vec<String> {
    let mut columns: Vec<String> = FIRST.map(str::to_owned).into();
    if types.iter().any(|event| event.layout.has_cgroup()) {
        columns.push("_cgroup".to_owned());
    }
    for event in types {
        let fields = event.format.tracepoint().map_or(&[][..], |format| format.fields());
        let has_one_value = |member: &SampleMember| matches!(member.kind(), MemberType::Int | MemberType::Bytes);
        let members = event.own_members().filter(has_one_value).map(|member| member.name().to_owned());
        for name in fields.iter().map(|field| field.name.clone()).chain(members) {
            if !columns.contains(&name) {
                columns.push(name);
            }
        }
    }
    if types.iter().any(|&event| has_callchain(&Sample { event, record: &[] })) {
        columns.push("_stack".to_owned());
    }
    columns
}
