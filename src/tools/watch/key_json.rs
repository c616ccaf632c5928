//! The names and the values of keys, for tables and JSON.

use std::net::{Ipv4Addr, Ipv6Addr};

use perf_prof_events::{
    aggregate::{Key, KeyPart},
    event::EventType,
};
use serde_json::{Map, Value as Json, json};

/// The keys of a table.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The names, as the user gives them.
    pub names: Vec<String>,
    /// Which of them are Internet addresses: some field with this name is one.
    are_addresses: Vec<bool>,
}

impl Keys {
    /// Creates the keys with these names for these events.
    pub fn new(names: Vec<String>, events: &[EventType]) -> Self {
        let is_address = |name: &String| {
            events.iter().filter_map(|event| event.format.tracepoint()).any(|format| format.shows_as_address(name))
        };
        Self { are_addresses: names.iter().map(is_address).collect(), names }
    }

    /// Returns the names as titles. The leading `_` of members of all events is removed.
    pub fn titles(&self) -> impl Iterator<Item = String> {
        self.names.iter().map(|name| name.strip_prefix('_').unwrap_or(name).to_owned())
    }

    /// Returns the values of a key as texts.
    pub fn texts(&self, key: &Key) -> Vec<String> {
        key.iter().enumerate().map(|(at, part)| self.text(at, part)).collect()
    }

    /// Returns a key as members of a JSON object.
    pub fn members(&self, key: &Key) -> Map<String, Json> {
        let value = |(at, part): (usize, &KeyPart)| match part {
            KeyPart::Bytes(_) => json!(self.text(at, part)),
            _ => value(part),
        };
        self.titles().zip(key.iter().enumerate().map(value)).collect()
    }

    /// Returns a key as one line of text: `comm=make cpu=1`.
    pub fn line(&self, key: &Key) -> String {
        let parts = self.titles().zip(self.texts(key)).map(|(name, text)| format!("{name}={text}"));
        parts.collect::<Vec<_>>().join(" ")
    }

    fn text(&self, at: usize, part: &KeyPart) -> String {
        let address = match part {
            KeyPart::Bytes(bytes) if self.are_addresses.get(at) == Some(&true) => address(bytes),
            _ => None,
        };
        address.unwrap_or_else(|| part.text().into_owned())
    }
}

/// Returns the text of an Internet address; `None` if the number of bytes is wrong.
fn address(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|bytes| Ipv4Addr::from(bytes).to_string());
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(|bytes| Ipv6Addr::from(bytes).to_string())).ok()
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
