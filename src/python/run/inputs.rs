//! Expands patterns in the paths of recordings: `*.data` stands for all recordings whose names end in `.data`.

use std::path::PathBuf;

/// The error for a pattern that matches no recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' {1}")]
pub struct PatternError(String, String);

/// Returns the paths of all recordings, in the order of `inputs`. The matches of one pattern are sorted by name.
pub fn expand(inputs: &[PathBuf]) -> Result<Vec<PathBuf>, PatternError> {
    let mut paths = Vec::new();
    for input in inputs {
        let text = input.to_string_lossy();
        if !text.contains(['*', '?', '[']) {
            paths.push(input.clone());
            continue;
        }
        let unusable = |why: String| PatternError(text.to_string(), why);
        // `input` may be the name of a file and also a pattern that matches other files. All of these files are
        // replayed.
        let own = input.exists().then(|| input.clone());
        let found = match glob::glob(&text) {
            Ok(found) => found.collect::<Result<Vec<_>, _>>(),
            Err(_) if own.is_some() => Ok(Vec::new()),
            Err(error) => return Err(unusable(format!("is not a pattern: {error}"))),
        };
        let mut found = found.map_err(|error| unusable(format!("cannot be expanded: {error}")))?;
        found.extend(own.filter(|own| !found.contains(own)));
        if found.is_empty() {
            return Err(unusable("matches no file".into()));
        }
        paths.append(&mut found);
    }
    Ok(paths)
}
