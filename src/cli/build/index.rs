//! The sections of the index that `perf-prof help WORD` searches, and their text form in the executable.

/// An entry of the index: a section of a document, a script, or a part of the package `perf_prof`.
pub struct Section {
    /// The kind of the section. `help/texts.rs` maps it to the kind of an entry.
    pub kind: &'static str,
    /// The command or document where the user can read more.
    pub place: String,
    /// The name of the section.
    pub name: String,
    /// The rows of the tables in the section. For a script, the options of the script.
    pub rows: Vec<Row>,
    /// The text of the section: each line is a sentence or a command.
    pub lines: Vec<String>,
}

/// A row of a table.
pub struct Row {
    /// The header of the table's first column.
    pub head: String,
    /// The first cell.
    pub name: String,
    /// The other cells.
    pub text: String,
}

impl Section {
    pub fn new(kind: &'static str, place: String, name: String) -> Section {
        Section { kind, place, name, rows: Vec::new(), lines: Vec::new() }
    }

    /// Removes everything except the heading and the first sentence.
    pub fn keep_heading(&mut self) {
        self.kind = "design";
        self.rows.clear();
        self.lines.truncate(1);
    }

    /// Returns the section as text: a line for the section, a line for each row, and a line for each of its `lines`.
    /// The first character of a line is its kind. Tabs separate the parts of a line.
    fn text(&self) -> String {
        let head = format!("#{}\t{}\t{}\n", self.kind, self.place, self.name);
        let rows = self.rows.iter().map(|row| format!("|{}\t{}\t{}\n", row.head, row.name, row.text));
        let lines = self.lines.iter().map(|line| format!(".{line}\n"));
        std::iter::once(head).chain(rows).chain(lines).collect()
    }
}

pub fn text(sections: &[Section]) -> String {
    sections.iter().map(Section::text).collect()
}

/// Returns the sentences of a text.
pub fn sentences(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    let mut from = 0;
    while let Some(at) = rest[from..].find(". ").map(|at| at + from) {
        let next = rest[at + 2..].trim_start();
        if next.starts_with(|c: char| c.is_uppercase() || "`-(".contains(c)) {
            found.push(rest[..=at].to_owned());
            rest = next;
            from = 0;
        } else {
            from = at + 2;
        }
    }
    if !rest.is_empty() {
        found.push(rest.to_owned());
    }
    found
}
