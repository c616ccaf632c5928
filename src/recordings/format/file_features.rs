//! The features of a file: those that follow its records, or if they cannot be read, those at its start.

use super::{
    features::Features,
    header::{self, FileHeader},
};
use crate::{
    error::{PerfDataError, missing_end, moved_end},
    input::random_access::Input,
    limits::MemoryLimit,
};

/// The features of a file.
pub(crate) struct FileFeatures {
    pub features: Features,
    /// Whether the recorder exited normally.
    pub is_finished: bool,
}

impl FileFeatures {
    /// Reads the features. Adds warnings about what is missing.
    pub fn read(
        input: &dyn Input,
        limit: &MemoryLimit,
        header: &FileHeader,
        warnings: &mut Vec<String>,
    ) -> Result<FileFeatures, PerfDataError> {
        let name = limit.name();
        let io = |error| PerfDataError::io(name, error);
        let known = header::read_early_features(input, header).map_err(io)?;
        let is_finished = header.data.size != 0 && !(header.features.is_empty() && known.is_some());
        let list = header.feature_list();
        // The list of feature sections after the records was never written, or is cut off.
        let has_list = is_finished && list.offset.saturating_add(list.size) <= input.size().map_err(io)?;
        let mut features = match &known {
            Some(known) if !has_list => Features::read(input, limit, known, warnings)?,
            _ if header.data.size == 0 => Features::default(),
            _ => Features::read(input, limit, header, warnings)?,
        };
        // If bytes are missing before the feature sections, these are not where the header says.
        let is_moved = has_list && (features.tracing_data.is_none() || features.events.is_empty());
        if let Some(known) = known.as_ref().filter(|_| is_moved && !warnings.is_empty()) {
            *warnings = vec![moved_end(name)];
            features = Features::read(input, limit, known, warnings)?;
        }
        // If one section has wrong bytes, another one may have some too, and nobody would notice wrong times.
        features.sample_time = features.sample_time.filter(|(first, last)| warnings.is_empty() && first <= last);
        if !is_finished {
            warnings.push(format!(
                "{name} was not finished: the recorder did not exit normally. The records can still be read{}",
                if known.is_some() { "" } else { ", but event names and tracepoint formats are missing" }
            ));
        } else if !has_list {
            warnings.push(missing_end(name));
        }
        Ok(FileFeatures { features, is_finished })
    }
}
