//! Expands patterns of file names of recordings.

use std::path::PathBuf;

/// A pattern matches no recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' {1}")]
pub struct PatternError(String, String);

/// Returns all recordings, in the order of `inputs`; those of a pattern are sorted by name.
pub fn expand(inputs: &[PathBuf]) -> Result<Vec<PathBuf>, PatternError> {
    let mut paths = Vec::new();
    for input in inputs {
        let text = input.to_string_lossy();
        // A file may have a name that looks like a pattern.
        if !text.contains(['*', '?', '[']) || input.exists() {
            paths.push(input.clone());
            continue;
        }
        let unusable = |why: String| PatternError(text.to_string(), why);
        let found = glob::glob(&text).map_err(|error| unusable(format!("is not a pattern: {error}")))?;
        let before = paths.len();
        for path in found {
            paths.push(path.map_err(|error| unusable(format!("cannot be expanded: {error}")))?);
        }
        if paths.len() == before {
            return Err(unusable("matches no file".into()));
        }
    }
    Ok(paths)
}
