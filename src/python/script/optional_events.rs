//! The script's `__without__`: the events that the script can run without.

use std::collections::BTreeMap;

use pyo3::prelude::*;

use super::{Module, ScriptError};

/// The events that the script can run without. The value says what is missing in the result without the event; `None`
/// if nothing is missing.
pub type OptionalEvents = BTreeMap<String, Option<String>>;

impl Module {
    /// Returns the module's `__without__`: `{'system:name': 'what is missing'}`. A module without `__without__` needs
    /// all of its events.
    pub fn without(&self) -> Result<OptionalEvents, ScriptError> {
        Python::attach(|py| match self.loaded.module.bind(py).dict().get_item("__without__") {
            Ok(Some(without)) => without.extract().map_err(|_| ScriptError::Without(self.loaded.path.clone())),
            _ => Ok(OptionalEvents::new()),
        })
    }
}
