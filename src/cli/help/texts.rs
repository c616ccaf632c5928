//! The entries of the index for documents. With Python, also the entries for the package `perf_prof` and the shipped
//! scripts. The build script (`src/cli/build/`) writes the index that is read here.

use super::entry::{Entry, Kind};

const DOCUMENTS: &str = include_str!(concat!(env!("OUT_DIR"), "/documents.index"));

/// The index of the package and of the scripts. The text is empty without Python, because perf-prof then contains no
/// package and no scripts.
const PACKAGE: &str =
    if cfg!(feature = "python") { include_str!(concat!(env!("OUT_DIR"), "/package.index")) } else { "" };

/// Returns the entries of all texts.
pub fn entries() -> Vec<Entry> {
    let mut found: Vec<Entry> = Vec::new();
    let mut section = 0;
    for line in DOCUMENTS.lines().chain(PACKAGE.lines()) {
        let (mark, rest) = line.split_at(1);
        let mut parts = rest.splitn(3, '\t');
        let [first, second, last] = [(); 3].map(|()| parts.next().unwrap_or_default());
        match mark {
            "#" => {
                section = found.len();
                found.push(Entry::new(kind(first, second, last), last, "", second));
            }
            "|" => add_row(&mut found, section, first, second, last),
            _ => add_line(&mut found[section], rest),
        }
    }
    found.retain(|entry| entry.kind != Kind::Callback || cfg!(feature = "python"));
    found
}

fn kind(kind: &str, place: &str, name: &str) -> Kind {
    match kind {
        "script" => Kind::Script,
        "member" => Kind::Member,
        // The aggregators are the classes that this document describes.
        "module" if place.starts_with("docs/aggregators.md") && name.starts_with(char::is_uppercase) => {
            Kind::Aggregator
        }
        "module" => Kind::Module,
        "design" => Kind::Design,
        _ => Kind::Document,
    }
}

/// Adds a line of text to an entry. The first line becomes its `text`; all later lines go to `more`.
fn add_line(entry: &mut Entry, line: &str) {
    if entry.text.is_empty() {
        line.clone_into(&mut entry.text);
    } else {
        entry.more.push(line.to_owned());
    }
}

/// Adds an entry for a table row. `head` is the header of the table's first column. The header decides the kind of the
/// entry.
fn add_row(found: &mut Vec<Entry>, section: usize, head: &str, name: &str, text: &str) {
    let place = found[section].place.clone();
    let kind = match head {
        "option" if found[section].kind == Kind::Script => {
            let name = format!("{} {name}", found[section].name);
            return found.push(Entry::new(Kind::Script, name, text, place));
        }
        // The first cell is a question. The second cell is the command that answers it.
        "symptom" => return found.push(Entry::new(Kind::Example, text.replace('`', ""), name, place)),
        "ATTR" => Kind::Attribute,
        "function" if place.starts_with("docs/reference.md") => Kind::Callback,
        "variable" => Kind::Environment,
        // A row with several names becomes a line of its section, because each of the names has an entry already.
        "selector" | "modifier" if !name.contains(", ") => Kind::Event,
        "column" => Kind::Column,
        "message" => Kind::Message,
        _ => return found[section].more.push(format!("{name}: {text}")),
    };
    found.push(Entry::new(kind, name, text, place));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn described(kind: Kind, name: &str, place: &str) {
        let found = entries();
        let entry = found.iter().find(|entry| entry.kind == kind && entry.name == name);
        let entry = entry.unwrap_or_else(|| panic!("{name} is not in the index"));
        assert_eq!((&*entry.place, entry.text.is_empty()), (place, false), "{entry:?}");
    }

    #[test]
    fn tables_of_documents_become_entries() {
        described(Kind::Attribute, "alias=NAME", "docs/reference.md#attributes");
        described(Kind::Attribute, "min=TIME", "docs/reference.md#spans");
        described(Kind::Message, "tracefs is not mounted", "docs/troubleshooting.md#start-status-1");
        described(Kind::Design, "Invariants", "docs/architecture.md#invariants");
        described(Kind::Document, "Several processes", "docs/recordings.md#several-processes");
    }

    #[cfg(feature = "python")]
    #[test]
    fn the_package_and_the_scripts_become_entries() {
        described(Kind::Member, "event._comm", "docs/reference.md#events");
        described(Kind::Module, "Log2Hist(name)", "docs/reference.md#log2hist");
        described(Kind::Module, "syscall_name(nr)", "docs/reference.md#the-module-perf_prof");
        described(
            Kind::Aggregator,
            "Hist(value, by, *, linear, unit, where, limit)",
            "docs/aggregators.md#aggregators",
        );
        described(Kind::Script, "scripts/runqlat.py", "scripts/runqlat.py --usage");
        described(Kind::Script, "scripts/runqlat.py --all", "scripts/runqlat.py --usage");
        described(Kind::Callback, "__interval__()", "docs/reference.md#callbacks");
    }
}
