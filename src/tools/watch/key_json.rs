//! The names and the values of keys, for tables and JSON.

use perf_prof_events::aggregate::{Key, KeyPart};
use serde_json::{Map, Value as Json, json};

/// Returns the names of keys as titles. The leading `_` of members of all events is removed.
pub fn shown_names(by: &[String]) -> Vec<String> {
    by.iter().map(|name| name.strip_prefix('_').unwrap_or(name).to_owned()).collect()
}

/// Returns a key as members of a JSON object.
pub fn key_members(by: &[String], key: &Key) -> Map<String, Json> {
    shown_names(by).into_iter().zip(key).map(|(name, part)| (name, value(part))).collect()
}

/// Returns a key as one line of text: `comm=make cpu=1`.
pub fn key_line(by: &[String], key: &Key) -> String {
    let parts = shown_names(by).into_iter().zip(key).map(|(name, part)| format!("{name}={}", part.text()));
    parts.collect::<Vec<_>>().join(" ")
}

fn value(part: &KeyPart) -> Json {
    match part {
        KeyPart::Number(number) => match (u64::try_from(*number), i64::try_from(*number)) {
            (Ok(number), _) => json!(number),
            (_, Ok(number)) => json!(number),
            // Not reached, because numbers in events fit into 64 bits.
            _ => json!(number.to_string()),
        },
        KeyPart::Text(text) => json!(String::from_utf8_lossy(text)),
        KeyPart::Bytes(_) => json!(part.text()),
        KeyPart::Words(bytes) => json!(perf_prof_format::value::words(bytes).collect::<Vec<u64>>()),
        KeyPart::Missing => Json::Null,
    }
}
