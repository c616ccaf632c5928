//! The parameters of a Python function. They determine how the function is called.

use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::PyDict,
};

/// The parameters of a function. If it is a bound method, `self` is not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// The parameters that can be passed by position.
    pub positional: Vec<Parameter>,
    /// Whether the function has `*args`.
    pub rest: Rest,
    /// The parameters that can only be passed by name.
    pub by_name: Vec<Parameter>,
    /// Whether the function has `**kwargs`.
    pub named_rest: Rest,
}

/// One parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The name of the parameter.
    pub name: String,
    /// Whether it must be passed.
    pub need: Need,
}

/// Whether a parameter must be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The parameter must be passed, because it has no default value.
    Required,
    /// The parameter has a default value.
    Optional,
}

/// Whether a function takes any number of further arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    /// No.
    #[default]
    None,
    /// Yes, all further arguments.
    Taken,
}

impl Parameters {
    /// Returns the parameters of a callable. Returns `None` if Python does not know them, as for most functions of
    /// extension modules. If the callable computes its own signature, fails with the exception that the computation
    /// raises.
    pub fn of(function: &Bound<'_, PyAny>) -> PyResult<Option<Parameters>> {
        let py = function.py();
        let inspect = py.import("inspect")?;
        let signature = match inspect.call_method1("signature", (function,)) {
            // Python documents these exceptions for callables without a signature.
            Err(error) if error.is_instance_of::<PyValueError>(py) || error.is_instance_of::<PyTypeError>(py) => {
                return Ok(None);
            }
            signature => signature?,
        };
        let none = inspect.getattr("Parameter")?.getattr("empty")?;
        let mut parameters = Parameters::default();
        for parameter in signature.getattr("parameters")?.call_method0("values")?.try_iter()? {
            let parameter = parameter?;
            let name: String = parameter.getattr("name")?.extract()?;
            let has_default = !parameter.getattr("default")?.is(&none);
            let need = if has_default { Need::Optional } else { Need::Required };
            let kind: String = parameter.getattr("kind")?.getattr("name")?.extract()?;
            match kind.as_str() {
                "VAR_POSITIONAL" => parameters.rest = Rest::Taken,
                "VAR_KEYWORD" => parameters.named_rest = Rest::Taken,
                "KEYWORD_ONLY" => parameters.by_name.push(Parameter { name, need }),
                _ => parameters.positional.push(Parameter { name, need }),
            }
        }
        Ok(Some(parameters))
    }
}

/// Returns where the function was defined, for messages: `file:line`; `None` if this is not known.
pub fn place(function: &Bound<'_, PyAny>) -> Option<String> {
    let code = function.getattr("__code__").ok()?;
    let file: String = code.getattr("co_filename").ok()?.extract().ok()?;
    Some(format!("{file}:{}", code.getattr("co_firstlineno").ok()?.extract::<u32>().ok()?))
}

/// Returns the callable of this name in `module`; `None` if there is none.
pub fn callable<'py>(module: &Bound<'py, PyDict>, name: &str) -> Option<Bound<'py, PyAny>> {
    module.get_item(name).ok().flatten().filter(|found| found.is_callable())
}
