//! Makes random declarations for an event.

use perf_prof_events::aggregate::{Buckets, Definition, LinearRanges, Measure};
use perf_prof_format::{
    tracefs::{EventFormat, Field},
    value::{Value, ValueType},
};

use super::records::Chosen;

/// The members that random keys contain, besides fields.
const MEMBERS: [&str; 7] = ["_pid", "_tid", "_cpu", "_comm", "_event", "common_pid", "common_type"];

/// Returns a random declaration whose keys and sum the event has.
pub fn definition(format: &EventFormat, samples: &[Vec<u8>], chosen: &mut Chosen) -> Definition {
    let names = || format.fields().iter().map(|field| field.name.clone());
    let all: Vec<String> = names().chain(MEMBERS.map(str::to_owned)).collect();
    let keys = (0..chosen.below(4)).map(|_| chosen.one(&all).clone()).collect();
    let is_number = |field: &&Field| matches!(field.kind.value_type(), ValueType::Int | ValueType::Bool);
    let numbers: Vec<String> = format.fields().iter().filter(is_number).map(|field| field.name.clone()).collect();
    let value = (!numbers.is_empty() && chosen.below(3) != 0).then(|| chosen.one(&numbers).clone());
    let measure = if chosen.below(2) == 0 { Measure::Sum } else { Measure::Distribution(buckets(chosen)) };
    Definition { keys, value, filter: filter(format, samples, chosen), limit: 1 << 20, measure }
}

fn buckets(chosen: &mut Chosen) -> Buckets {
    let divisor = *chosen.one(&[1, 1, 1000, 1_000_000, 1_000_000_000, 7, 4096]);
    if chosen.below(2) == 0 {
        return Buckets::log2(divisor);
    }
    let low = *chosen.one(&[0, -100, 10, -1]);
    let ranges = LinearRanges { low, high: low + 1 + chosen.below(5000) as i64, step: 1 + chosen.below(70) as i64 };
    Buckets::linear(ranges, divisor).unwrap()
}

/// Returns a random filter that some of the records may pass.
pub fn filter(format: &EventFormat, samples: &[Vec<u8>], chosen: &mut Chosen) -> Option<String> {
    let tests: Vec<String> = (0..chosen.below(4)).filter_map(|_| comparison(format, samples, chosen)).collect();
    let mut tests = tests.into_iter();
    let mut text = tests.next()?;
    for test in tests {
        let joined = *chosen.one(&["&&", "||"]);
        text = format!("{}({text}) {joined} {test}", *chosen.one(&["", "!"]));
    }
    Some(text)
}

fn comparison(format: &EventFormat, samples: &[Vec<u8>], chosen: &mut Chosen) -> Option<String> {
    if format.fields().is_empty() || chosen.below(8) == 0 {
        return Some((*chosen.one(&["cpu == 1", "CPU >= 2", "common_pid > -1", "common_pid != 101"])).to_owned());
    }
    let field = chosen.one(format.fields());
    let name = &field.name;
    let sample = chosen.one(samples);
    let value = field.value(sample)?;
    if let Value::Str(text) = value {
        let text: String = String::from_utf8_lossy(text).chars().filter(char::is_ascii).collect();
        let start: String = text.chars().take(1 + chosen.below(3)).collect();
        let patterns = [
            format!("== \"{text}\""),
            format!("!= \"{text}\""),
            format!("~ \"{start}*\""),
            format!("~ \"*{}\"", &text[text.len() / 2..]),
            format!("~ \"*{}*\"", &text[text.len() / 3..2 * text.len() / 3]),
        ];
        return Some(format!("{name} {}", chosen.one(&patterns)));
    }
    // A filter compares the whole field, by its type. For an unsigned field, a filter accepts no negative number.
    let number = match value {
        Value::Bool(on) => i64::from(on),
        Value::Int(number) if field.signed => number,
        Value::Uint(number) => number.try_into().ok()?,
        _ => return None,
    };
    let operator = chosen.one(&["==", "!=", "<", "<=", ">", ">=", "&"]);
    Some(format!("{name} {operator} {number}"))
}
