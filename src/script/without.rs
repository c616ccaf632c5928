//! What a script says of the events that it can do without.

use std::collections::BTreeMap;

use pyo3::prelude::*;

use super::{Module, ScriptError};

/// Of each event that the script can do without, what its result then lacks; `None` where that is nothing.
pub type Without = BTreeMap<String, Option<String>>;

impl Module {
    /// The module's `__without__`, `{'system:name': 'what is missing'}`. Without one it needs all of its events.
    pub fn without(&self) -> Result<Without, ScriptError> {
        Python::attach(|py| match self.loaded.module.bind(py).dict().get_item("__without__") {
            Ok(Some(without)) => without.extract().map_err(|_| ScriptError::Without(self.loaded.path.clone())),
            _ => Ok(Without::new()),
        })
    }
}
