//! Determines from the parameters of a handler which values it gets, and in which order. perf passes as many values by
//! position as the handler has parameters. If this does not fit the fields of the event in this kernel, the values are
//! passed by name. This file itself makes no calls to Python.

use super::parameters::{Need, Parameters, Rest};

/// A value that a handler of a tracepoint can get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// One of the values that all tracepoints have.
    Common(Common),
    /// A field of the event, by its index.
    Field(usize),
    /// A dict of all fields.
    Fields,
    /// `perf_sample_dict`: everything that is known about the sample.
    Sample,
}

/// The values that all tracepoints have. They are listed in the order of a handler's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Common {
    /// `event_name`: `system__name`.
    EventName,
    /// `context`: the argument of the functions of `perf_trace_context`.
    Context,
    /// `common_cpu`.
    Cpu,
    /// `common_secs`.
    Secs,
    /// `common_nsecs`.
    Nsecs,
    /// `common_pid`.
    Pid,
    /// `common_comm`.
    Comm,
    /// `common_callchain`.
    Callchain,
}

/// The values that all tracepoints have, and the names of their parameters. Scripts from before 2014 do not have the
/// last parameter, the callchain.
const COMMON: [(&str, Common); 8] = [
    ("event_name", Common::EventName),
    ("context", Common::Context),
    ("common_cpu", Common::Cpu),
    ("common_secs", Common::Secs),
    ("common_nsecs", Common::Nsecs),
    ("common_pid", Common::Pid),
    ("common_comm", Common::Comm),
    ("common_callchain", Common::Callchain),
];

/// The name of the parameter that comes after the fields.
const SAMPLE: &str = "perf_sample_dict";

/// The values that a handler gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passing {
    /// The values that are passed by position.
    pub positional: Vec<Value>,
    /// The values that are passed by name.
    pub named: Vec<(String, Value)>,
}

/// Why a handler cannot be called with the values of its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The parameters that are neither a common value nor a field of the event.
    pub unknown: Vec<String>,
    /// The number of values that are passed by position.
    pub values: usize,
    /// The number of parameters of the handler.
    pub parameters: usize,
}

impl Passing {
    /// Determines which values a function with these parameters gets. A function whose parameters are not known gets all
    /// values except the sample. `fields` contains the names of the event's fields.
    pub fn to(parameters: Option<&Parameters>, fields: &[String]) -> Result<Passing, Mismatch> {
        let all: Vec<Value> = common_values(COMMON.len()).chain((0..fields.len()).map(Value::Field)).collect();
        let Some(parameters) = parameters else { return Ok(Passing { positional: all, named: Vec::new() }) };
        let must_name = parameters.by_name.iter().any(|parameter| parameter.need == Need::Required);
        let count = parameters.positional.len();
        let required = parameters.positional.iter().filter(|parameter| parameter.need == Need::Required).count();
        if !must_name && (count == all.len() || parameters.rest == Rest::Taken && required <= all.len()) {
            return Ok(Passing { positional: all, named: Vec::new() });
        }
        let (values, has_room) = (all.len(), !must_name && count > all.len() && required <= all.len() + 1);
        // If there are more parameters than values and the values were passed by position, the last parameters would
        // keep their default values. So passing by name is tried first.
        let named = if has_room && count == values + 1 { None } else { Some(by_name(parameters, fields, values)) };
        match named {
            Some(passing) if passing.is_ok() || !has_room => passing,
            _ => Ok(Passing { positional: all.into_iter().chain([Value::Sample]).collect(), named: Vec::new() }),
        }
    }

    /// Determines which values `trace_unhandled(event_name, context, event_fields_dict[, perf_sample_dict])` gets. In
    /// scripts from before 2012, it gets the common values instead of the dict.
    pub fn to_unhandled(parameters: Option<&Parameters>) -> Result<Passing, Mismatch> {
        let first = [Value::Common(Common::EventName), Value::Common(Common::Context)];
        let count = parameters.map_or(3, |parameters| match parameters.rest {
            Rest::Taken => parameters.positional.len().max(3),
            Rest::None => parameters.positional.len(),
        });
        let positional = match count {
            3 => [&first[..], &[Value::Fields]].concat(),
            4 => [&first[..], &[Value::Fields, Value::Sample]].concat(),
            7 | 8 => common_values(count).collect(),
            _ => return Err(Mismatch { unknown: Vec::new(), values: 3, parameters: count }),
        };
        Ok(Passing { positional, named: Vec::new() })
    }
}

/// Passes the fields by the names of the parameters. The common values are passed by position.
fn by_name(parameters: &Parameters, fields: &[String], values: usize) -> Result<Passing, Mismatch> {
    let Parameters { positional, by_name, named_rest, .. } = parameters;
    let takes_names = *named_rest == Rest::Taken || !by_name.is_empty();
    let mut mismatch = Mismatch { unknown: Vec::new(), values, parameters: positional.len() };
    let old = COMMON.len() - 1;
    if positional.len() < old && !takes_names {
        return Err(mismatch);
    }
    // The eighth parameter is the callchain. In scripts from before 2014, the eighth parameter is the first field.
    let has_callchain =
        positional.get(old).is_some_and(|eighth| eighth.name != SAMPLE && field_named(&eighth.name, fields).is_none());
    let common = if has_callchain { COMMON.len() } else { old.min(positional.len()) };
    let mut passing = Passing { positional: common_values(common).collect(), named: Vec::new() };
    for (at, parameter) in positional.iter().chain(by_name).enumerate().skip(common) {
        match value_named(&parameter.name, fields) {
            // If an earlier parameter keeps its default, `value` cannot be passed by position.
            Some(value) if passing.positional.len() == at && at < positional.len() => passing.positional.push(value),
            Some(value) => passing.named.push((parameter.name.clone(), value)),
            None if parameter.need == Need::Required => mismatch.unknown.push(parameter.name.clone()),
            None => {}
        }
    }
    if !mismatch.unknown.is_empty() {
        return Err(mismatch);
    }
    if *named_rest == Rest::Taken {
        // A function with fewer than seven positional parameters gets the remaining common values by name.
        let common = COMMON.iter().map(|&(name, common)| (name, Value::Common(common)));
        let common = common.filter(|_| positional.len() < old);
        let fields = fields.iter().enumerate().map(|(at, name)| (name.as_str(), Value::Field(at)));
        for (name, value) in common.chain(fields) {
            let is_passed =
                passing.positional.contains(&value) || passing.named.iter().any(|(_, named)| *named == value);
            if !is_passed {
                passing.named.push((name.to_owned(), value));
            }
        }
    }
    Ok(passing)
}

/// Returns the first `count` values that all tracepoints have.
fn common_values(count: usize) -> impl Iterator<Item = Value> {
    COMMON[..count].iter().map(|&(_, common)| Value::Common(common))
}

fn value_named(name: &str, fields: &[String]) -> Option<Value> {
    let common = || COMMON.iter().find(|of| of.0 == name).map(|of| Value::Common(of.1));
    match field_named(name, fields) {
        Some(at) => Some(Value::Field(at)),
        None if name == SAMPLE => Some(Value::Sample),
        None => common(),
    }
}

/// Returns the index of the field for the parameter `name`. If the name of a field is a Python keyword, the name of its
/// parameter ends with an underscore: `from_`.
fn field_named(name: &str, fields: &[String]) -> Option<usize> {
    let find = |name: &str| fields.iter().position(|field| field == name);
    find(name).or_else(|| find(name.strip_suffix('_')?))
}

#[cfg(test)]
mod tests {
    use super::{super::parameters::Parameter, *};

    fn fields() -> Vec<String> {
        ["comm", "pid", "from"].map(str::to_owned).to_vec()
    }

    fn required(names: &[&str]) -> Vec<Parameter> {
        names.iter().map(|name| Parameter { name: (*name).to_owned(), need: Need::Required }).collect()
    }

    fn optional(names: &[&str]) -> Vec<Parameter> {
        names.iter().map(|name| Parameter { name: (*name).to_owned(), need: Need::Optional }).collect()
    }

    fn parameters(first: usize, names: &[&str]) -> Parameters {
        let common: Vec<&str> = COMMON[..first].iter().map(|(name, _)| *name).collect();
        Parameters { positional: required(&[&common, names].concat()), ..Parameters::default() }
    }

    /// Returns the values after the common ones as text: first those that are passed by position, then those that are
    /// passed by name.
    fn shown(parameters: &Parameters) -> String {
        match Passing::to(Some(parameters), &fields()) {
            Ok(passing) => {
                let common = passing.positional.iter().filter(|value| matches!(value, Value::Common(_))).count();
                let named: Vec<String> =
                    passing.named.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
                format!("{common} {:?} {}", &passing.positional[common..], named.join(" "))
            }
            Err(mismatch) => format!("{mismatch:?}"),
        }
    }

    #[test]
    fn as_many_parameters_as_values_get_the_values_whatever_their_names() {
        expect_test::expect!["8 [Field(0), Field(1), Field(2)] "].assert_eq(&shown(&parameters(8, &["a", "b", "c"])));
    }

    #[test]
    fn one_more_parameter_gets_the_sample() {
        expect_test::expect!["8 [Field(0), Field(1), Field(2), Sample] "]
            .assert_eq(&shown(&parameters(8, &["a", "b", "c", "d"])));
        let mut defaults = parameters(8, &["a", "b", "c"]);
        defaults.positional.extend(optional(&["d", "e"]));
        expect_test::expect!["8 [Field(0), Field(1), Field(2), Sample] "].assert_eq(&shown(&defaults));
    }

    #[test]
    fn other_numbers_of_parameters_get_the_fields_of_their_names() {
        expect_test::expect!["8 [Field(1)] "].assert_eq(&shown(&parameters(8, &["pid"])));
        expect_test::expect!["7 [Field(2), Field(0), Sample] "]
            .assert_eq(&shown(&parameters(7, &["from_", "comm", "perf_sample_dict"])));
        expect_test::expect![[r#"Mismatch { unknown: ["prio"], values: 11, parameters: 10 }"#]]
            .assert_eq(&shown(&parameters(8, &["pid", "prio"])));
        expect_test::expect!["Mismatch { unknown: [], values: 11, parameters: 3 }"]
            .assert_eq(&shown(&parameters(3, &[])));
    }

    #[test]
    fn rest_parameters_get_the_values_that_are_left() {
        let all = Parameters { rest: Rest::Taken, ..Parameters::default() };
        expect_test::expect!["8 [Field(0), Field(1), Field(2)] "].assert_eq(&shown(&all));
        let named = Parameters { named_rest: Rest::Taken, ..parameters(8, &["pid"]) };
        expect_test::expect!["8 [Field(1)] comm=Field(0) from=Field(2)"].assert_eq(&shown(&named));
        let only_named = Parameters { by_name: required(&["comm"]), ..parameters(8, &[]) };
        expect_test::expect!["8 [] comm=Field(0)"].assert_eq(&shown(&only_named));
    }

    #[test]
    fn a_parameter_that_keeps_its_default_is_no_mismatch() {
        let mut keeps = parameters(8, &[]);
        keeps.positional.extend(optional(&["limit", "pid"]));
        expect_test::expect!["8 [] pid=Field(1)"].assert_eq(&shown(&keeps));
    }
}
