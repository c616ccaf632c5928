//! The rows that the last reading of a table found, while the table stays in use.

use std::collections::HashMap;

/// Keys and values, as the kernel stores them, in the order in which the kernel returned them.
#[derive(Debug, Default)]
pub(super) struct KnownRows {
    bytes: Vec<u8>,
    key_bytes: usize,
    value_bytes: usize,
}

impl KnownRows {
    /// Creates an empty list of rows with keys and values of these sizes.
    pub fn new(key_bytes: usize, value_bytes: usize) -> KnownRows {
        KnownRows { bytes: Vec::new(), key_bytes, value_bytes }
    }

    /// Adds a row.
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    /// Returns the memory of the rows, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Finds rows by their keys.
    pub fn finder(&self) -> Finder<'_> {
        Finder { rows: self, rest: &self.bytes, by_key: None }
    }

    fn by_key(&self) -> HashMap<&[u8], &[u8]> {
        let rows = self.bytes.chunks_exact((self.key_bytes + self.value_bytes).max(1));
        rows.map(|row| row.split_at(self.key_bytes)).collect()
    }
}

/// Finds rows by their keys. The kernel usually returns rows in the same order again, with new ones in between. So a row is
/// usually the one after the row that was found last.
pub(super) struct Finder<'a> {
    rows: &'a KnownRows,
    /// The rows after the one that was found last.
    rest: &'a [u8],
    /// The rows by their keys; `None` until a row was looked up that is not the first of `rest`.
    by_key: Option<HashMap<&'a [u8], &'a [u8]>>,
}

impl<'a> Finder<'a> {
    /// Returns the value of a row; `None` if the row is new.
    pub fn value(&mut self, key: &[u8]) -> Option<&'a [u8]> {
        let &KnownRows { key_bytes, value_bytes, .. } = self.rows;
        match self.rest.split_at_checked(key_bytes + value_bytes) {
            Some((row, rest)) if row.get(..key_bytes) == Some(key) => {
                self.rest = rest;
                Some(&row[key_bytes..])
            }
            _ => self.by_key.get_or_insert_with(|| self.rows.by_key()).get(key).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rows: &KnownRows, keys: &[&str]) -> Vec<Option<String>> {
        let mut finder = rows.finder();
        let value = |key: &&str| finder.value(key.as_bytes()).map(|value| String::from_utf8_lossy(value).into_owned());
        keys.iter().map(value).collect()
    }

    #[test]
    fn rows_are_found_in_any_order_and_between_new_ones() {
        let mut rows = KnownRows::new(3, 1);
        assert_eq!(found(&rows, &["one"]), [None]);
        [("one", "1"), ("two", "2"), ("six", "6")]
            .iter()
            .for_each(|(key, value)| rows.add(key.as_bytes(), value.as_bytes()));
        let some = |values: &str| values.chars().map(|c| (c != '-').then(|| c.to_string())).collect::<Vec<_>>();
        assert_eq!(found(&rows, &["one", "two", "six"]), some("126"));
        assert_eq!(found(&rows, &["new", "one", "old", "two", "six", "all"]), some("-1-26-"));
        assert_eq!(found(&rows, &["six", "two", "one", "two"]), some("6212"));
    }
}
