//! Serves the aggregators of a script as metrics. The module `perf_prof.metrics` does this in a thread of the script's
//! interpreter.

use pyo3::prelude::*;

use super::{Program, ScriptError};

/// The module that contains the server.
const MODULE: &str = "perf_prof.metrics";

/// A thread that serves metrics.
pub struct MetricsServer(Py<PyAny>);

impl Program {
    /// Starts to serve the aggregators among the globals of the script.
    pub fn serve(&self, listen: &str) -> Result<MetricsServer, ScriptError> {
        let started = Python::attach(|py| {
            let server = py.import(MODULE)?.call_method1("serve_script", (&self.names, listen))?;
            Ok(MetricsServer(server.unbind()))
        });
        started.map_err(|error: PyErr| {
            let cause = Python::attach(|py| error.value(py).to_string());
            ScriptError::Serve { listen: listen.to_owned(), cause }
        })
    }
}

impl MetricsServer {
    /// Returns the URL of the page with the metrics.
    pub fn url(&self) -> String {
        Python::attach(|py| self.0.bind(py).getattr("url")?.extract()).unwrap_or_default()
    }

    /// Ends the thread.
    pub fn close(self) {
        // If this fails, the thread ends together with the interpreter.
        let _ = Python::attach(|py| self.0.bind(py).call_method0("close").map(drop));
    }
}
