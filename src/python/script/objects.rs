//! Delivers event objects that exist already to a program, instead of objects for the records of a run.

use perf_prof_events::event::{Deliver, Flow, Sink};
use pyo3::prelude::*;

use super::host::{AttachedProgram, Program};

/// A program that gets event objects that exist already: the next object for each sample of the run.
pub struct WithObjects<'a> {
    program: &'a mut Program,
    objects: std::vec::IntoIter<Py<PyAny>>,
}

impl<'a> WithObjects<'a> {
    /// Creates the receiver of a run's samples.
    pub fn new(program: &'a mut Program, objects: Vec<Py<PyAny>>) -> Self {
        WithObjects { program, objects: objects.into_iter() }
    }
}

impl Sink for WithObjects<'_> {
    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
        let WithObjects { program, objects } = self;
        Python::attach(|py| {
            // Scripts of `perf script` get no event objects.
            if let Some(program) = program.attached(py) {
                body(&mut AttachedObjects { program, objects });
            }
        });
    }
}

struct AttachedObjects<'a, 'py> {
    program: AttachedProgram<'a, 'py>,
    objects: &'a mut std::vec::IntoIter<Py<PyAny>>,
}

impl Deliver for AttachedObjects<'_, '_> {
    fn sample(&mut self, event: usize, _record: &[u8]) -> Flow {
        match self.objects.next() {
            Some(object) => self.program.object(event, object),
            None => Flow::Continue(()),
        }
    }

    fn inner(&mut self) -> Option<&mut dyn Deliver> {
        Some(&mut self.program)
    }
}
