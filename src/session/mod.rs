//! Plan and run loop: source to sink, interval, statistics, end. Knows nothing of argv.

pub mod plan;

use self::plan::Plan;

/// The status that the process is to exit with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitStatus(pub u8);

/// Does what the plan says, and gives the status to exit with.
pub fn run(plan: Plan) -> anyhow::Result<ExitStatus> {
    anyhow::bail!("the session for `{}` is not built yet", plan.command_line)
}
