//! The port through which events go out: to the script host, or to a recorder in a test.

/// Why a sink wants no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The program asked to end with this status (`sys.exit`).
    Exit(u8),
    /// It was interrupted from the keyboard.
    Interrupted,
    /// Nobody reads its output any more.
    ClosedPipe,
    /// A callback failed, and failures are to end the run.
    Failed,
}

/// Whether to go on.
pub type Flow = std::ops::ControlFlow<Stop>;

/// What a program can be told, while it is entered.
pub trait Deliver {
    /// A sample of the event type with this index.
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow;
    /// Events were lost between these two times; 0 and 0 where order is not kept.
    fn lost(&mut self, start: u64, end: u64) -> Flow;
    /// Another interval has passed.
    fn interval(&mut self) -> Flow;
    /// Statistics are wanted.
    fn print_stat(&mut self, indent: u32) -> Flow;
    /// How many events the program has kept.
    fn kept(&self) -> usize;
    /// The end, called once whatever ended the run.
    fn exit(&mut self) -> Flow;
}

/// Where events go. Entering takes whatever the program needs (an interpreter's lock), once for a whole batch; the
/// run loop waits outside.
pub trait Sink {
    /// Enters, runs `body` and leaves.
    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver));
}
